"""The store, on SQLite or PostgreSQL: the only package that imports SQLAlchemy."""

from __future__ import annotations

from streamer.store.audit.forgetting import SIX_MONTHS, Pruned, prune
from streamer.store.db.engine import absolute_url
from streamer.store.db.migrate import SchemaState, check, downgrade, migrate, schema_state
from streamer.store.db.roles import Roles, create_roles
from streamer.store.store import Store, open_store

__all__ = [
    "SIX_MONTHS",
    "Pruned",
    "Roles",
    "SchemaState",
    "Store",
    "absolute_url",
    "check",
    "create_roles",
    "downgrade",
    "migrate",
    "open_store",
    "prune",
    "schema_state",
]
