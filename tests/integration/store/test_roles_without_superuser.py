"""The three roles where nobody is superuser, as on managed PostgreSQL: made by the owners of databases.

Every test runs on the versions before and after PostgreSQL 16, which parted being a member of a role from acting as it.
"""

import json
from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy.engine import make_url

from streamer.cli import WRONG_USAGE, main
from streamer.store import check, create_roles, migrate
from streamer.store.db.roles import ROLES, RightsMissing
from tests.integration.store.conftest import START, World
from tests.services.postgres import PostgresServer, debian_programs, what_postgres_needs
from tests.services.requirements import missing
from tests.told import Told

pytestmark = pytest.mark.postgres


class Site:
    """A server without roles of ours, its administrator, and users that are none."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server

    def administrator(self, *statements: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run statements as a superuser, as they were printed; returns the rows of the last."""
        with psycopg.connect(
            host=str(self.server.folder), user="postgres", dbname=database, autocommit=True
        ) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def owner(self, user: str, *, rights: str = "CREATEROLE", owns: bool = True) -> str:
        """A new login with `rights` and a new, empty database; returns the URL of one as the other."""
        self.administrator(f'CREATE ROLE "{user}" LOGIN {rights}')
        url = self.server.create_database(f"of_{user}")
        if owns:
            self.administrator(f'ALTER DATABASE "of_{user}" OWNER TO "{user}"')
        return str(make_url(url).set(username=user))

    def login(self, url: str, user: str, role: str) -> str:
        """A new login that is a member of one of our roles; returns the database's URL as that user."""
        self.administrator(f'CREATE ROLE "{user}" LOGIN IN ROLE {role}')
        return str(make_url(url).set(username=user))

    def owners(self, url: str) -> set[str]:
        """Who owns the schema and what is in it."""
        rows = self.administrator(
            "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = 'streamer'::regnamespace"
            " UNION SELECT pg_get_userbyid(proowner) FROM pg_proc WHERE pronamespace = 'streamer'::regnamespace"
            " UNION SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'streamer'",
            database=str(make_url(url).database),
        )
        return {str(owner) for (owner,) in rows}

    def clear(self) -> None:
        """Drop all databases and roles that a test made."""
        for (name,) in self.administrator("SELECT datname FROM pg_database WHERE datname LIKE 'of_%'"):
            self.server.drop_database(self.server.url_of(str(name)))
        made = "SELECT quote_ident(rolname) FROM pg_roles WHERE rolname <> 'postgres' AND rolname !~ '^pg_'"
        names = ", ".join(str(name) for (name,) in self.administrator(made))
        if names:
            self.administrator(f"DROP ROLE {names}")


@pytest.fixture(scope="module", params=["the package's", "Debian's"])
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    if need := what_postgres_needs():
        missing(*need)
    programs = None
    if request.param == "Debian's":
        if not debian_programs():
            missing("no second version of PostgreSQL", "apt-get install postgresql")
        programs = debian_programs()[0]
    server = PostgresServer(durable=False, programs=programs)
    server.start()
    yield server
    server.remove()


@pytest.fixture
def site(server: PostgresServer) -> Iterator[Site]:
    site = Site(server)
    yield site
    site.clear()


def separates_set_from_member(site: Site) -> bool:
    ((version,),) = site.administrator("SHOW server_version_num")
    return int(str(version)) >= 160000


def used(url: str) -> None:
    """Decide something as the application."""
    world = World(url)
    world.gate()
    world.keep(world.decision(0, at=START))
    assert world.store.evidence.log_faults() == []
    world.close()


def test_the_owner_of_an_empty_database_makes_the_roles_and_migrates(site: Site):
    url = site.owner("Olga's")
    assert create_roles(url) == ROLES
    migrate(url)
    create_roles(url)
    assert site.owners(url) == {ROLES.migrate}
    assert check(url) is None
    used(site.login(url, "worker", ROLES.app))


def test_a_database_that_its_owner_used_before_is_given_to_the_roles(site: Site):
    url = site.owner("olga")
    migrate(url)
    used(url)
    create_roles(url)
    create_roles(url)
    assert site.owners(url) == {ROLES.migrate}
    assert check(url) is None


def test_the_creator_of_the_roles_who_cannot_act_as_them_yet_gets_the_membership(site: Site):
    url = site.owner("olga")
    with psycopg.connect(host=str(site.server.folder), user="olga", dbname="of_olga") as connection:
        for role in ROLES:
            connection.execute(f"CREATE ROLE {role} NOLOGIN")
    create_roles(url)
    migrate(url)
    assert site.owners(url) == {ROLES.migrate}


def test_roles_of_another_owner_need_one_statement_of_an_administrator(site: Site):
    create_roles(site.owner("olga"))
    url = site.owner("Second owner")
    if separates_set_from_member(site):
        with pytest.raises(RightsMissing) as refusal:
            create_roles(url)
        asked = refusal.value.statements
        assert asked == ('GRANT streamer_migrate TO "Second owner" WITH INHERIT TRUE, SET TRUE;',)
        assert asked[0] in str(refusal.value)
        site.administrator(*asked)
    create_roles(url)
    migrate(url)
    assert site.owners(url) == {ROLES.migrate}
    used(site.login(url, "worker", ROLES.app))


def test_members_of_the_roles_get_in_where_the_public_may_not(site: Site):
    url = site.owner("olga")
    site.administrator('REVOKE CONNECT ON DATABASE "of_olga" FROM PUBLIC')
    create_roles(url)
    migrate(site.login(url, "migrator", ROLES.migrate))
    used(site.login(url, "worker", ROLES.app))
    with psycopg.connect(
        host=str(site.server.folder),
        user=str(make_url(site.login(url, "reader", ROLES.read)).username),
        dbname="of_olga",
    ) as connection:
        assert connection.execute("SELECT count(*) FROM streamer.v_decisions").fetchone() == (1,)


def test_they_get_in_when_the_public_is_locked_out_afterwards(site: Site):
    url = site.owner("olga")
    create_roles(url)
    migrate(url)
    site.administrator('REVOKE CONNECT ON DATABASE "of_olga" FROM PUBLIC')
    used(site.login(url, "worker", ROLES.app))


def test_whoever_may_let_nobody_in_reads_what_to_ask_for(site: Site):
    create_roles(site.owner("olga"))
    url = site.owner("guest", rights="", owns=False)
    site.administrator(
        "GRANT streamer_migrate TO guest",
        'GRANT CREATE, CONNECT ON DATABASE "of_guest" TO guest',
        'REVOKE CONNECT ON DATABASE "of_guest" FROM PUBLIC',
    )
    with pytest.raises(RightsMissing) as refusal:
        create_roles(url)
    assert refusal.value.statements == (
        "GRANT CONNECT ON DATABASE of_guest TO streamer_migrate, streamer_app, streamer_read;",
    )
    site.administrator(*refusal.value.statements)
    create_roles(url)
    migrate(url)
    used(site.login(url, "worker", ROLES.app))


@pytest.mark.parametrize(
    ("owns", "migrated_by"),
    [(True, None), (False, None), (True, "plain"), (False, "postgres")],
    ids=["owner", "guest", "owner with tables", "guest among another's tables"],
)
def test_what_an_administrator_was_asked_for_is_enough_for_anybody(
    site: Site, owns: bool, migrated_by: str | None
):
    url = site.owner("plain", rights="", owns=owns)
    if migrated_by is not None:
        migrate(str(make_url(url).set(username=migrated_by)))
    with pytest.raises(RightsMissing, match="lacks the rights to do it alone") as refusal:
        create_roles(url)
    found = [line for line in refusal.value.statements if line.startswith("CREATE ROLE")]
    assert found == [f"CREATE ROLE {role} NOLOGIN;" for role in ROLES]
    site.administrator(*refusal.value.statements, database="of_plain")
    create_roles(url)
    migrate(url)
    assert site.owners(url) == {ROLES.migrate}
    assert check(url) is None
    used(site.login(url, "worker", ROLES.app))


def test_roles_that_suffice_are_enough_without_rights_to_make_any(site: Site):
    site.administrator(*(f"CREATE ROLE {role} NOLOGIN" for role in ROLES))
    url = site.owner("plain", rights="")
    site.administrator("GRANT streamer_migrate TO plain")
    create_roles(url)
    migrate(url)
    assert site.owners(url) == {ROLES.migrate}


def test_whoever_may_not_migrate_reads_what_to_ask_for(site: Site):
    url = site.owner("olga")
    create_roles(url)
    other = site.login(url, "worker", ROLES.app)
    with pytest.raises(RightsMissing, match="cannot act as streamer_migrate") as refusal:
        migrate(other)
    site.administrator(*refusal.value.statements)
    migrate(other)


def test_the_command_prints_each_statement_on_a_line_of_its_own(
    site: Site, monkeypatch: pytest.MonkeyPatch, told: Told
):
    url = site.owner("plain", rights="")
    monkeypatch.setenv("STREAMER_DATABASE_URL", url)
    output, errors = told("db", "roles", status=WRONG_USAGE)
    statements = output.splitlines()
    assert statements[0] == "CREATE ROLE streamer_migrate NOLOGIN;"
    assert "an administrator" in errors
    assert "streamer db roles" in errors
    assert json.loads(told("db", "roles", "--json", status=WRONG_USAGE).out) == {"administrator": statements}
    site.administrator(*statements, database="of_plain")
    assert main(["db", "roles"]) == 0


def test_an_owner_that_could_take_the_tables_back_is_told_so(site: Site):
    url = site.owner("olga")
    create_roles(url)
    migrate(url)
    if separates_set_from_member(site):
        # What its creator keeps of a role that it made: to grant itself the rest at any time.
        site.administrator(
            "REVOKE streamer_migrate FROM olga GRANTED BY olga",
            "GRANT streamer_app TO olga WITH INHERIT TRUE",
        )
    world = World(url)
    assert world.store.reports.may_rewrite() is True
    world.close()
    world = World(site.login(url, "worker", ROLES.app))
    assert world.store.reports.may_rewrite() is False
    world.close()
