"""Three database roles on PostgreSQL: who owns the tables, who adds to them, who only looks.

Rights follow from the tables that are there: they are granted anew by each migration, so that a new table is the
app's to read and to add to, and nobody's to change, without anybody thinking of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.store.engine import SCHEMA, Database

if TYPE_CHECKING:
    from collections.abc import Iterable

APP_MAY_UPDATE: dict[str, tuple[str, ...] | None] = {
    "control_head": ("chain_height", "chain_hash"),
    "dead_letters": ("replayed_at", "replayed_by"),
    # For the lock on a gate's row alone, which takes this right; a trigger refuses the change itself.
    "gates": ("name",),
    "leases": None,
    "monitor_alarms": (
        "evidence_ratio", "state", "raised_by", "raised_at", "alert_id", "closed_policy", "ended",
    ),
    "monitor_gates": None,
    "monitor_sequences": (
        "last_batch", "read_at", "decisions", "labelled", "overdue", "exposure", "exposure_lower", "exposure_upper",
        "selective", "selective_lower", "selective_upper", "state", "ended",
    ),
    "outbox": ("published_at", "parked_at", "error"),
    "pending_messages": ("parked_at", "error"),
    "progress": None,
    "review_claims": ("labeller", "holder", "expires_at"),
    "review_offers": ("skipped_at", "marks", "mark", "marked_at"),
}  # fmt: skip
"""State that moves on, by column (None: all). Everything else the app can only add to."""

APP_MAY_DELETE = ("outbox", "pending_messages", "review_claims")
"""A trigger keeps what is not published of the outbox. What is gone from the queue of a partition is still in `decisions` or
`dead_letters`; a claim is worth nothing once it is given up."""

_VERSION_TABLE = "schema_version"


class Roles(NamedTuple):
    """The names of the roles.

    Attributes
    ----------
    migrate : owns schema and tables; changes and prunes them.
    app : runs the product: reads, adds, and moves its own state on.
    read : sees the views.
    """

    migrate: str = "streamer_migrate"
    app: str = "streamer_app"
    read: str = "streamer_read"


ROLES = Roles()


def create_roles(url: str, *, insecure: bool = False) -> Roles:
    """Create the roles that are missing, give schema and tables to the first, and grant; safe to repeat.

    None of them can log in: make your own users their members. The database user that runs this needs the rights
    to create roles and to give the tables away; a superuser has them.

    Raises
    ------
    UsageError
        When the database is SQLite, or the user has not the rights.
    Unavailable
        When the server cannot be reached.
    """
    database = Database(url, insecure=insecure)
    try:
        if database.sqlite:
            raise UsageError("SQLite has no roles: whoever may write the file may change everything in it")
        with database.errors(), database.engine.begin() as connection:
            for name in ROLES:
                # Roles are the server's, not the database's: somebody may make them at this moment.
                connection.exec_driver_sql(
                    f"DO $$ BEGIN CREATE ROLE {name} NOLOGIN;"
                    " EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
                )
            member = sa.text("SELECT pg_has_role(current_user, :owner, 'MEMBER')")
            if not connection.scalar(member, {"owner": ROLES.migrate}):
                connection.exec_driver_sql(f"GRANT {ROLES.migrate} TO CURRENT_USER")
            _give_away(connection)
            grant(connection)
        return ROLES
    finally:
        database.close()


def become_owner(connection: sa.Connection) -> None:
    """Act as the role that owns the schema until the transaction ends, where the roles are in use.

    What a migration makes is then owned by one role, whoever ran it.
    """
    if _in_use(connection):
        connection.exec_driver_sql(f"SET LOCAL ROLE {ROLES.migrate}")


def grant(connection: sa.Connection) -> None:
    """Grant what each role may do with the tables and views that are there, and nothing else.

    Changes nothing where the roles are not in use.
    """
    if not _in_use(connection):
        return
    inspector = sa.inspect(connection)
    _, app, read = ROLES
    both = f"{app}, {read}"
    statements = [
        f"GRANT USAGE ON SCHEMA {SCHEMA} TO {both}",
        f"REVOKE ALL ON ALL TABLES IN SCHEMA {SCHEMA} FROM {both}",
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {SCHEMA} TO {app}",
    ]
    quote = connection.dialect.identifier_preparer.quote
    for table in inspector.get_table_names(SCHEMA):
        name = f"{SCHEMA}.{quote(table)}"
        rights = ["SELECT"] if table == _VERSION_TABLE else ["SELECT", "INSERT"]
        if table in APP_MAY_UPDATE:
            columns = APP_MAY_UPDATE[table]
            rights.append("UPDATE" if columns is None else f"UPDATE ({', '.join(columns)})")
        if table in APP_MAY_DELETE:
            rights.append("DELETE")
        statements.append(f"GRANT {', '.join(rights)} ON {name} TO {app}")
    views = inspector.get_view_names(SCHEMA)
    statements += [f"GRANT SELECT ON {SCHEMA}.{quote(view)} TO {both}" for view in views]
    for statement in statements:
        connection.exec_driver_sql(statement)


def may_rewrite(connection: sa.Connection) -> bool:
    """Tell whether this database user could change or delete what was recorded."""
    return bool(
        connection.scalar(
            sa.text(
                "SELECT has_table_privilege(:table, 'UPDATE') OR has_table_privilege(:table, 'DELETE')"
                " OR has_table_privilege(:table, 'TRUNCATE')"
            ),
            {"table": f"{SCHEMA}.outcomes"},
        )
    )


def _in_use(connection: sa.Connection) -> bool:
    owner = sa.text(
        "SELECT pg_get_userbyid(nspowner) FROM pg_catalog.pg_namespace WHERE nspname = :schema"
    ).bindparams(schema=SCHEMA)
    return bool(connection.scalar(owner) == ROLES.migrate)


def _give_away(connection: sa.Connection) -> None:
    """Make the migrating role the owner of the schema and of everything in it."""
    connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA} AUTHORIZATION {ROLES.migrate}")
    if not _in_use(connection):
        connection.exec_driver_sql(f"ALTER SCHEMA {SCHEMA} OWNER TO {ROLES.migrate}")
    inspector = sa.inspect(connection)
    quote = connection.dialect.identifier_preparer.quote

    def give(kind: str, names: Iterable[str]) -> None:
        for name in names:
            connection.exec_driver_sql(f"ALTER {kind} {SCHEMA}.{name} OWNER TO {ROLES.migrate}")

    give("TABLE", map(quote, inspector.get_table_names(SCHEMA)))  # their sequences go with them
    give("VIEW", map(quote, inspector.get_view_names(SCHEMA)))
    routines = sa.text(
        "SELECT quote_ident(proname) || '(' || pg_get_function_identity_arguments(oid) || ')'"
        " FROM pg_catalog.pg_proc WHERE pronamespace = CAST(:schema AS regnamespace)"
    ).bindparams(schema=SCHEMA)
    give("ROUTINE", connection.scalars(routines).all())
