"""Three database roles on PostgreSQL: who owns the tables, who adds to them, who only looks.

Rights follow from what the tables say of themselves (`Kept`): each migration grants them again, so that a new table is the
app's to read and to add to, and nobody's to change.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import filterfalse
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import exc

from streamer.errors import UsageError
from streamer.store.db.engine import SCHEMA, Database
from streamer.store.db.schema import metadata
from streamer.store.db.schema.types import Kept, is_month, kept_of
from streamer.store.db.transport import psycopg

_VERSION_TABLE = "schema_version"


class Roles(NamedTuple):
    """The names of the roles: `migrate` owns schema and tables, changes and prunes them; `app`
    runs the product: reads, adds, and moves its own state on; `read` sees the views."""

    migrate: str = "streamer_migrate"
    app: str = "streamer_app"
    read: str = "streamer_read"


ROLES = Roles()


class RightsMissing(UsageError):
    """This database user lacks rights: who may not do `what`, one clause, and the `statements`
    that an administrator must run so that this user can continue."""

    def __init__(self, what: str, statements: Sequence[str]) -> None:
        super().__init__(f"{what}. Have an administrator run: {' '.join(statements)}")
        self.what = what
        self.statements = tuple(statements)


def create_roles(url: str, *, insecure: bool = False) -> Roles:
    """Create the roles that are missing, give schema and tables to the first, and grant; safe to repeat.

    None of them can log in: make your own users their members. The owner of a database who may create roles
    (CREATEROLE) can run it; so can any user that may act as the first role, once the roles are there.
    Raises `UsageError` when the database is SQLite. Raises `RightsMissing` when the user lacks
    rights; nothing is changed then. Raises `Unavailable` when the server cannot be reached.
    """
    with closing(Database(url, insecure=insecure)) as database:
        if database.sqlite:
            raise UsageError("SQLite has no roles: anyone who may write the file may change everything in it")
        with database.errors(), database.engine.begin() as connection:
            refused = _make_roles(connection)
            refused += _let_in(connection)
            transfers = _transfers(connection)
            refused += [statement for statement, allowed in transfers if not allowed]
            if refused:
                raise RightsMissing(
                    f"{database}: this database user lacks the rights to do it alone", refused
                )
            for statement, _ in transfers:
                connection.exec_driver_sql(statement)
            become_owner(connection)
            grant(connection)
        return ROLES


def become_owner(connection: sa.Connection) -> None:
    """Act as the role that owns the schema until the transaction ends, where the roles are in use.

    What a migration makes is then owned by one role, whichever user ran it. Raises `RightsMissing`
    when this user may not act as that role.
    """
    if not _in_use(connection):
        return
    if not _may_become_owner(connection):
        raise RightsMissing(
            f"this database user lacks the rights to do it: it cannot act as {ROLES.migrate}, which owns the tables",
            [_membership(connection)],
        )
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
    for table in filterfalse(
        is_month, inspector.get_table_names(SCHEMA)
    ):  # rights to the whole reach its parts
        may = ["SELECT"] if table == _VERSION_TABLE else rights(table)
        statements.append(f"GRANT {', '.join(may)} ON {SCHEMA}.{quote(table)} TO {app}")
    views = inspector.get_view_names(SCHEMA)
    statements += [f"GRANT SELECT ON {SCHEMA}.{quote(view)} TO {both}" for view in views]
    for statement in statements:
        connection.exec_driver_sql(statement)


def rights(table: str) -> list[str]:
    """What the app may do with a table of the record; one that no declaration knows it may add to."""
    own = kept_of(metadata.tables[table]) if table in metadata.tables else Kept()
    update = "UPDATE" if own.updates is None else f"UPDATE ({', '.join(own.updates)})"
    return [
        "SELECT",
        "INSERT",
        *([update] if own.updates != () else []),
        *(["DELETE"] if own.deletes else []),
    ]


def may_rewrite(connection: sa.Connection) -> bool:
    """Report whether this database user could change or delete what was recorded, by itself or as another role."""
    return bool(
        connection.scalar(
            sa.text(
                "SELECT has_table_privilege(oid, 'UPDATE') OR has_table_privilege(oid, 'DELETE')"
                " OR has_table_privilege(oid, 'TRUNCATE') OR pg_has_role(relowner, 'MEMBER')"
                " FROM pg_catalog.pg_class WHERE oid = CAST(:table AS regclass)"
            ),
            {"table": f"{SCHEMA}.outcomes"},
        )
    )


def _in_use(connection: sa.Connection) -> bool:
    owner = sa.text(
        "SELECT pg_get_userbyid(nspowner) FROM pg_catalog.pg_namespace WHERE nspname = :schema"
    ).bindparams(schema=SCHEMA)
    return bool(connection.scalar(owner) == ROLES.migrate)


def _make_roles(connection: sa.Connection) -> list[str]:
    """Create the roles that are missing and join the one that owns; returns the statements that were refused."""
    refused = []
    there = set(connection.scalars(sa.text("SELECT rolname FROM pg_catalog.pg_roles")))
    for name in ROLES:
        create = f"CREATE ROLE {name} NOLOGIN;"
        # Roles belong to the server, not to the database: another session may be creating them now.
        quietly = (
            f"DO $$ BEGIN {create} EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
        )
        if name not in there and not _run(connection, quietly):
            refused.append(create)
    membership = _membership(connection)
    unmade = f"CREATE ROLE {ROLES.migrate} NOLOGIN;" in refused
    if unmade or not (_may_become_owner(connection) or _run(connection, membership)):
        refused.append(membership)
    return refused


def _let_in(connection: sa.Connection) -> list[str]:
    """Let the roles into this database, whatever the public may; returns the statement where it is needed and refused."""
    name, granted = connection.execute(
        sa.text(
            "SELECT quote_ident(current_database()),"
            " has_database_privilege(current_database(), 'CONNECT WITH GRANT OPTION')"
        )
    ).one()
    roles = sa.text(
        "SELECT has_database_privilege(oid, current_database(), 'CONNECT') FROM pg_catalog.pg_roles"
        " WHERE rolname = ANY(:names)"
    )
    may = list(connection.scalars(roles, {"names": list(ROLES)}))
    statement = f"GRANT CONNECT ON DATABASE {name} TO {', '.join(ROLES)};"
    if len(may) < len(ROLES):
        public = sa.text("SELECT has_database_privilege('public', current_database(), 'CONNECT')")
        return [] if granted or connection.scalar(public) else [statement]
    if granted:
        connection.exec_driver_sql(statement)
    return [] if granted or all(may) else [statement]


def _run(connection: sa.Connection, statement: str) -> bool:
    """Run a statement; False, and nothing is changed, when this user lacks the right."""
    try:
        with connection.begin_nested():
            connection.exec_driver_sql(statement)
    except exc.ProgrammingError as error:
        if not isinstance(error.orig, psycopg.errors.InsufficientPrivilege):
            raise
        return False
    return True


def _may_become_owner(connection: sa.Connection) -> bool:
    # From PostgreSQL 16 on, the creator of a role is its member and yet may not act as it.
    right = "SET" if _since_16(connection) else "MEMBER"
    query = sa.text("SELECT pg_has_role(oid, :right) FROM pg_catalog.pg_roles WHERE rolname = :name")
    return bool(connection.scalar(query, {"name": ROLES.migrate, "right": right}))


def _membership(connection: sa.Connection) -> str:
    """The statement that lets this user act as the role that owns."""
    user = connection.scalar(sa.text("SELECT quote_ident(current_user)"))
    options = " WITH INHERIT TRUE, SET TRUE" if _since_16(connection) else ""
    return f"GRANT {ROLES.migrate} TO {user}{options};"


def _since_16(connection: sa.Connection) -> bool:
    return (connection.dialect.server_version_info or (0,)) >= (16,)


def _transfers(connection: sa.Connection) -> list[tuple[str, bool]]:
    """What makes the migrating role the owner of the schema and of everything in it, and whether this user may."""
    ours = sa.text("SELECT has_database_privilege(current_database(), 'CREATE')")
    may_create = bool(connection.scalar(ours))
    if not sa.inspect(connection).has_schema(SCHEMA):
        return [(f"CREATE SCHEMA {SCHEMA} AUTHORIZATION {ROLES.migrate};", may_create)]
    found = sa.text(
        "SELECT 'SCHEMA', quote_ident(nspname), pg_has_role(nspowner, 'USAGE') AND :may_create"
        " FROM pg_catalog.pg_namespace WHERE nspname = :schema AND pg_get_userbyid(nspowner) <> :owner"
        # Sequences go with their tables.
        " UNION ALL SELECT CASE relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END,"
        " quote_ident(nspname) || '.' || quote_ident(relname), pg_has_role(relowner, 'USAGE')"
        " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace"
        " WHERE nspname = :schema AND relkind IN ('r', 'p', 'v') AND pg_get_userbyid(relowner) <> :owner"
        " UNION ALL SELECT 'ROUTINE', quote_ident(nspname) || '.' || quote_ident(proname)"
        " || '(' || pg_get_function_identity_arguments(p.oid) || ')', pg_has_role(proowner, 'USAGE')"
        " FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = pronamespace"
        " WHERE nspname = :schema AND pg_get_userbyid(proowner) <> :owner"
    )
    rows = connection.execute(found, {"schema": SCHEMA, "owner": ROLES.migrate, "may_create": may_create})
    return [(f"ALTER {kind} {name} OWNER TO {ROLES.migrate};", bool(allowed)) for kind, name, allowed in rows]
