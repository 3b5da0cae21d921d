"""Who may listen on the way to PostgreSQL: nobody, unless the connection stays here or somebody permits it.

What is between this program and PostgreSQL: nothing, or a pooler that shares the server's sessions among clients.

Everything here works with either, since nothing that is set, locked or prepared outlives its transaction.
"""

import os
from typing import TYPE_CHECKING, Literal, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection

from streamer.errors import UsageError
from streamer.lazy import LazyModule
from streamer_client.loopback import is_loopback

if TYPE_CHECKING:
    import psycopg as psycopg
    import psycopg.adapt
else:
    psycopg = LazyModule("psycopg")  # SQLite does without it

_VERIFIED = ("verify-full", "verify-ca")


def protected(url: sa.URL, *, insecure: bool) -> sa.URL:
    """Return the URL of a connection to PostgreSQL that is encrypted to a server that proves who it
    is.

    A Unix socket and the loopback stay as they are. To another machine ``sslmode`` must be
    ``verify-full`` (the default here, where libpq's own falls back to plain text) or ``verify-ca``;
    with `insecure` every ``sslmode`` is permitted, libpq's default included. What the URL leaves
    open is read from libpq's environment (``PGHOST``, ``PGSSLMODE``, ...), as libpq does. Raises
    `UsageError` when the connection would leave this machine without that protection.
    """
    if insecure or all((host.startswith(("/", "@")) or is_loopback(host)) for host in _hosts(url)):
        return url
    mode = _option(url, "sslmode", "PGSSLMODE")
    if not mode:
        return url.update_query_dict({"sslmode": _VERIFIED[0]})
    if mode in _VERIFIED:
        return url
    raise UsageError(
        f"refusing to talk to the database at {', '.join(host or 'its service' for host in _hosts(url))} with"
        f" sslmode={mode}: write sslmode=verify-full (and sslrootcert=FILE for an authority of your own) into the"
        " database URL, or, if that network is trusted, say `streamer --insecure ...` (STREAMER_INSECURE=true)"
    )


def to_the_primary(url: sa.URL) -> sa.URL:
    """Return the URL of the server that takes writes where it names several; ``target_session_attrs`` may say otherwise."""
    if len(_hosts(url)) < 2 or _option(url, "target_session_attrs", "PGTARGETSESSIONATTRS"):
        return url
    return url.update_query_dict({"target_session_attrs": "read-write"})


def _hosts(url: sa.URL) -> list[str]:
    """Where libpq would connect to; an empty name is for what a connection service decides."""
    if _option(url, "service", "PGSERVICE"):
        return [""]
    for name, variable in (("hostaddr", "PGHOSTADDR"), ("host", "PGHOST")):
        named = (url.host or "") if name == "host" else ""
        found = named or _option(url, name, variable)
        if found:
            # SQLAlchemy takes several hosts as host:port each, libpq only as names.
            return [_without_port(one.strip()) for one in found.split(",")]
    return ["localhost"]  # the Unix socket in libpq's default folder


def _option(url: sa.URL, name: str, variable: str) -> str:
    given = url.query.get(name, "")
    text = given if isinstance(given, str) else ",".join(given)
    return text or os.environ.get(variable, "")


def _without_port(host: str) -> str:
    if host.startswith(("/", "@", "[")) or host.count(":") != 1:
        return host
    return host.partition(":")[0]


Pooling: TypeAlias = Literal["direct", "session", "transaction"]
"""No pooler; one that keeps a session for each client; one that may give each transaction another session."""

STATEMENT_MODE = "statement pooling mode"
"""Words of PgBouncer's refusal of a transaction, where it gives each statement another session."""

_LOOKS = 5


def is_pooled(connection: DBAPIConnection) -> bool:
    """Report whether a pooler is in between: the session that answers is not the one that was greeted."""
    cursor = connection.cursor()
    cursor.execute("SELECT pg_backend_pid()")
    (answering,) = cursor.fetchone() or (None,)
    cursor.close()
    return bool(answering != connection.info.backend_pid)


def pooling(engine: sa.Engine) -> Pooling:
    """Find out how the server is reached, from the sessions that two connections meet.

    A pooler that never gave both the same one counts as ``session``: it may have had a free one for each.
    """
    with engine.connect() as first, engine.connect() as second:
        both = (first, second)
        if not any(
            is_pooled(one.connection.dbapi_connection) for one in both if one.connection.dbapi_connection
        ):
            return "direct"
        for _ in range(_LOOKS):
            met = []
            for one in both:
                with one.begin():
                    met.append(one.scalar(sa.text("SELECT pg_backend_pid()")))
            if met[0] == met[1]:
                return "transaction"
    return "session"
