"""Accounts of people, on both databases."""

import contextlib
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.security.accounts import Account, fits
from streamer.store.audit import control
from streamer.store.db.schema import accounts, metadata
from tests.at_once import at_once
from tests.integration.store.conftest import World

PASSWORD = "correct horse battery"
ISSUER = "https://login.example"


def test_an_account_is_made_changed_closed_and_opened_again(world: World):
    people = world.store.accounts
    assert not people.any()
    assert people.get("ana") is None
    made = people.add("  ana ", roles=["approver", "viewer"], password=PASSWORD, by="root")
    assert (made.name, made.revision, made.roles) == ("ana", 1, ("viewer", "approver"))
    assert people.any()
    assert people.get("ana") == made
    assert fits(PASSWORD, made.password)
    assert not fits("another one, wrong", made.password)
    with pytest.raises(UsageError, match="has an account already"):
        people.add("ana", roles=["viewer"], password=PASSWORD, by="root")
    roles = people.set_roles("ana", ["viewer"], by="root", reason="moved")
    assert (roles.revision, roles.roles, roles.password) == (2, ("viewer",), made.password)
    closed = people.close("ana", by="root", reason="left")
    assert closed.closed
    assert (closed.password, closed.roles, closed.reason) == (None, (), "left")
    for change in (
        lambda: people.set_roles("ben", ["viewer"], by="root", reason="x"),
        lambda: people.set_password("ben", PASSWORD, by="root"),
    ):
        with pytest.raises(UsageError, match="there is no account of"):
            change()
    with pytest.raises(UsageError, match="the account of 'ana' is closed; adding it again opens it"):
        people.close("ana", by="root", reason="again")
    again = people.add("ana", roles=["labeller"], password=PASSWORD, by="root", reason="back")
    assert again.revision == 4
    people.add("Ben", roles=["viewer"], password=PASSWORD, by="root")
    assert {one.name: one.revision for one in people.list()} == {"ana": 4, "Ben": 1}


@pytest.mark.parametrize(
    ("name", "roles", "password", "wrong"),
    [
        ("", ["viewer"], PASSWORD, "the name is empty"),
        ("a\u202eb", ["viewer"], PASSWORD, "invisible character"),
        ("x" * 151, ["viewer"], PASSWORD, "at most 150"),
        ("ana", [], PASSWORD, "a role is one of"),
        ("ana", ["king"], PASSWORD, "not 'king'"),
        ("ana", ["viewer"], "short", "10 to 1000 characters"),
        ("ana", ["viewer"], "x" * 1001, "10 to 1000 characters"),
    ],
)
def test_what_cannot_be_an_account_is_refused(
    world: World, name: str, roles: list[str], password: str, wrong: str
):
    with pytest.raises(UsageError, match=wrong):
        world.store.accounts.add(name, roles=roles, password=password, by="root")
    assert not world.store.accounts.any()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("Ana Lopez", "differs from that of the account 'ana lopez' only in upper and lower case"),
        ("ana \u00a0LOPEZ", "only in upper and lower case"),
        ("STRASSE", "differs from that of the account 'Straße' only"),
        ("\u0430na lopez", "has letters of several scripts (Cyrillic, Latin)"),
        ("\u03bfscar", "has letters of several scripts (Greek, Latin)"),
        ("ana\u200blopez", "invisible character"),
    ],
)
def test_no_new_account_has_a_name_that_reads_like_another(world: World, name: str, wrong: str):
    people = world.store.accounts
    for known in ("ana lopez", "Straße"):
        people.add_issued(known, roles=["viewer"], issuer=ISSUER, by="root")
    people.close("Straße", by="root", reason="left")
    for make in (
        lambda: people.add(name, roles=["viewer"], password=PASSWORD, by="root"),
        lambda: people.add_issued(name, roles=["viewer"], issuer=ISSUER, by="root"),
        lambda: people.admit(name, issuer=ISSUER, subject="s", roles=["viewer"]),
    ):
        with pytest.raises(UsageError) as raised:
            make()
        assert wrong in str(raised.value)
    assert {one.name for one in people.list()} == {"Straße", "ana lopez"}
    assert not people.add_issued("Straße", roles=["viewer"], issuer=ISSUER, by="root").closed, (
        "it is its own name"
    )


@pytest.mark.parametrize(
    "name",
    [
        "José Ñandú",
        "山田 太郎ー たろう",
        "김철수",
        "\u3006木",
        "\U00017000\U00017001",
        "Иван",
        "Ali'i",
        "O\u2019Brien-2",
        "नमस्ते",
        "\u02bbOkina",
        "ana@team.example",
    ],
)
def test_people_of_any_one_script_have_accounts(world: World, name: str):
    assert world.store.accounts.add_issued(name, roles=["viewer"], issuer=ISSUER, by="root").name == name


def test_accounts_that_read_alike_already_keep_working(world: World):
    people = world.store.accounts
    first = people.add_issued("first", roles=["viewer"], issuer=ISSUER, by="root")
    for name in ("ana", "\u0430na"):
        row = {field: getattr(first, field) for field in Account.__slots__} | {"name": name}
        with world.store._database.engine.begin() as connection:
            control.insert(connection, accounts, row, now=world.clock())
    for name in ("ana", "\u0430na"):
        assert people.admit(name, issuer=ISSUER, subject=name, roles=["approver"]).roles == ("approver",)
        people.close(name, by="root", reason="left")
        assert people.add(name, roles=["viewer"], password=PASSWORD, by="root").revision == 4


def test_of_names_that_read_alike_at_one_moment_one_gets_an_account(world: World):
    names, made = ("ana", "Ana", "aNa", "ANA"), []

    def adds(name: str) -> None:
        with contextlib.suppress(UsageError):
            made.append(
                world.store.accounts.add_issued(name, roles=["viewer"], issuer=ISSUER, by="root").name
            )

    at_once(adds, *names)
    assert [one.name for one in world.store.accounts.list()] == made
    assert len(made) == 1


def test_every_change_is_sealed_without_what_a_password_could_be_guessed_by(world: World):
    people = world.store.accounts
    kept = people.add("ana", roles=["viewer"], password=PASSWORD, by="root").password
    people.close("ana", by="root", reason="left")
    rows = world.rows("SELECT sealed FROM control_log WHERE kind = 'accounts' ORDER BY leaf_index")
    assert [json.loads(one.sealed)["revision"] for one in rows] == [1, 2]
    for part in kept.split("$")[4:]:
        assert all(part not in one.sealed for one in rows)
    with world.store._database.reading() as connection:
        for table in metadata.sorted_tables:
            for row in connection.execute(sa.select(table)):
                assert PASSWORD not in repr(tuple(row)), table.name
    with world.store.evidence.snapshot() as snapshot:
        assert list(snapshot.unchained()) == []
        assert all("sealed" not in line for line in snapshot.control()), "the rows are as they were sealed"
    with pytest.raises(Exception, match="append-only"), world.store._database.engine.begin() as connection:
        connection.execute(sa.update(accounts).values(reason="never"))
    world.tamper("UPDATE accounts SET roles = '[\"administrator\"]' WHERE revision = 1")
    with world.store.evidence.snapshot() as snapshot:
        assert sum("sealed" in line for line in snapshot.control()) == 1


def test_of_two_administrators_who_demote_each_other_at_once_one_stays(new_world: Callable[..., World]):
    world = new_world()
    names = ("ana", "ben")
    for name in names:
        world.store.accounts.add(name, roles=["administrator"], password=PASSWORD, by="root")
    at_once = threading.Barrier(len(names))

    def demote(name: str, close: bool) -> str:
        store = world.open()
        at_once.wait(60)
        try:
            if close:
                store.accounts.close(name, by="test", reason="closed")
            else:
                store.accounts.set_roles(name, ["viewer"], by="test", reason="other roles")
        except UsageError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(2) as pool:
        done = sorted(pool.map(demote, names, (False, True)))
    assert done[0] == ""
    assert done[1].endswith("is the last administrator: make another one first")
    assert sum("administrator" in one.roles for one in world.store.accounts.list()) == 1
