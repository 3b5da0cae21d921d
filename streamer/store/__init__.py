"""The store, on SQLite or PostgreSQL: the only package that imports SQLAlchemy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamer.lazy import lazy_names

if TYPE_CHECKING:
    from streamer.store.audit.forgetting import SIX_MONTHS, Pruned, prune
    from streamer.store.db.engine import absolute_url
    from streamer.store.db.migrate import SchemaState, check, migrate, schema_state
    from streamer.store.db.months import make_months
    from streamer.store.db.roles import Roles, create_roles
    from streamer.store.store import Store, open_store
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Pruned": "streamer.store.audit.forgetting",
            "Roles": "streamer.store.db.roles",
            "SIX_MONTHS": "streamer.store.audit.forgetting",
            "SchemaState": "streamer.store.db.migrate",
            "Store": "streamer.store.store",
            "absolute_url": "streamer.store.db.engine",
            "check": "streamer.store.db.migrate",
            "create_roles": "streamer.store.db.roles",
            "make_months": "streamer.store.db.months",
            "migrate": "streamer.store.db.migrate",
            "open_store": "streamer.store.store",
            "prune": "streamer.store.audit.forgetting",
            "schema_state": "streamer.store.db.migrate",
        },
    )

__all__ = [
    "SIX_MONTHS",
    "Pruned",
    "Roles",
    "SchemaState",
    "Store",
    "absolute_url",
    "check",
    "create_roles",
    "make_months",
    "migrate",
    "open_store",
    "prune",
    "schema_state",
]
