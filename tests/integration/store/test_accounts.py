"""Accounts of people, on both databases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.security.accounts import fits
from streamer.store.db.schema import accounts, metadata

if TYPE_CHECKING:
    from tests.integration.store.conftest import World

PASSWORD = "correct horse battery"


def test_an_account_is_made_changed_closed_and_opened_again(world: World) -> None:
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
) -> None:
    with pytest.raises(UsageError, match=wrong):
        world.store.accounts.add(name, roles=roles, password=password, by="root")
    assert not world.store.accounts.any()


def test_every_change_is_sealed_without_what_a_password_could_be_guessed_by(world: World) -> None:
    people = world.store.accounts
    kept = people.add("ana", roles=["viewer"], password=PASSWORD, by="root").password
    people.close("ana", by="root", reason="left")
    rows = world.rows("SELECT sealed FROM control_log WHERE kind = 'accounts' ORDER BY chain_height")
    assert [json.loads(one.sealed)["revision"] for one in rows] == [1, 2]
    assert kept is not None
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
