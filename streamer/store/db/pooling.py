"""What is between this program and PostgreSQL: nothing, or a pooler that shares the server's sessions among clients.

Everything here works with either, since nothing that is set, locked or prepared outlives its transaction.
"""

from typing import Literal, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection

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
