"""The store, on SQLite or PostgreSQL: the only package that imports SQLAlchemy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamer.lazy import lazy_names

if TYPE_CHECKING:
    from streamer.store.audit.forgetting import SIX_MONTHS, Pruned, prune
    from streamer.store.audit.giving_out import GivenOut, give_out
    from streamer.store.db.engine import absolute_url
    from streamer.store.db.migrate import SchemaState, check, make_months, migrate, schema_state
    from streamer.store.db.roles import Roles, create_roles
    from streamer.store.store import Store, open_store
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "streamer.store.audit.forgetting": "Pruned SIX_MONTHS prune",
            "streamer.store.audit.giving_out": "GivenOut give_out",
            "streamer.store.db.engine": "absolute_url",
            "streamer.store.db.migrate": "SchemaState check make_months migrate schema_state",
            "streamer.store.db.roles": "Roles create_roles",
            "streamer.store.store": "Store open_store",
        },
    )
