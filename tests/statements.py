"""One cache of compiled statements for all engines of a process.

The program opens one engine and keeps it. Tests open hundreds, each on a database of its own, and a third of their time would go
into compiling the same statements again. Nothing else about an engine is shared.
"""

from collections.abc import MutableMapping
from typing import Any, Final

from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import Engine
from sqlalchemy.util import LRUCache

_SHARED: Final[MutableMapping[Any, Any]] = LRUCache(5_000)
_DIALECTS: Final[tuple[type[Any], ...]] = (SQLiteDialect_pysqlite, PGDialect_psycopg)
_MATTERS: Final = ("_json_serializer", "_json_deserializer", "server_version_info", "_backslash_escapes")
"""What of a dialect's state its compiled statements depend on."""


def share_statements() -> None:
    """Let dialects of one kind count as one in the keys of the cache, and all engines of these kinds use the same cache."""

    def alike(one: Any, other: object) -> bool:
        return type(one) is type(other) and all(
            getattr(one, name, None) == getattr(other, name, None) for name in _MATTERS
        )

    for dialect in _DIALECTS:
        dialect.__eq__ = alike  # type: ignore[method-assign, assignment]
        dialect.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign, assignment]

    def cache(engine: Any) -> MutableMapping[Any, Any] | None:
        own: MutableMapping[Any, Any] | None = vars(engine)["_own_cache"]
        return _SHARED if own is not None and isinstance(engine.dialect, _DIALECTS) else own

    def keep(engine: Any, own: MutableMapping[Any, Any] | None) -> None:
        vars(engine)["_own_cache"] = own

    Engine._compiled_cache = property(cache, keep)  # type: ignore[assignment]
