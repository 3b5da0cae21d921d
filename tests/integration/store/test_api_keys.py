"""API keys on record, on both databases."""

import time
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.security.api_keys import KeyRing, Rate, digest_of
from streamer.store.db.schema import api_keys, control_log, metadata
from tests.integration.store.conftest import START, World
from tests.integration.store.test_reports import accepted


def create(world: World, **changes: Any) -> tuple[Any, str]:
    chosen: dict[str, Any] = {"gates": ["support-bot"], "may": ["decide"], "by": "ana"} | changes
    return world.store.api_keys.create(**chosen)


def test_a_key_is_made_found_listed_and_revoked(world: World) -> None:
    keys = world.store.api_keys
    assert keys.list() == []
    first, token = create(
        world, may=["read", "decide"], rate=Rate(50, 60), note="shop", expires_at=START + timedelta(days=90)
    )
    second, _ = create(world, gates=None)
    assert (first.may, first.gates, first.created_by, first.digest) == (
        ("decide", "read"), ("support-bot",), "ana", digest_of(token),
    )  # fmt: skip
    assert second.gates is None
    assert keys.list() == [first, second]
    ring = KeyRing(keys.list, monotonic=time.monotonic)
    ring.refresh()
    assert ring.find(token, now=START) == first
    gone = keys.revoke(first.id, by="ben", reason="laptop lost")
    assert (gone.revoked_by, gone.revoked_reason) == ("ben", "laptop lost")
    assert keys.list() == [gone, second]
    assert [key for key in keys.list() if key.in_force(START)] == [second]
    ring.refresh()
    assert ring.find(token, now=START) is None


def test_the_token_is_nowhere_in_the_database(world: World) -> None:
    _, token = create(world)
    secret = token.rpartition("_")[2]
    with world.store._database.reading() as connection:
        for table in metadata.sorted_tables:
            for row in connection.execute(sa.select(table)):
                assert secret not in repr(tuple(row)), table.name
                assert bytes.fromhex(secret) not in [value for value in row if isinstance(value, bytes)]


def test_both_acts_are_sealed_and_cannot_be_undone(world: World) -> None:
    key, _ = create(world)
    world.store.api_keys.revoke(key.id, by="ana", reason="over")
    with world.store._database.reading() as connection:
        sealed = connection.execute(
            sa.select(control_log.c.kind, control_log.c.subject).order_by(control_log.c.leaf_index)
        ).all()
    assert sealed[-2:] == [("api_keys", f'["{key.id}"]'), ("api_key_revocations", f'["{key.id}"]')]
    changes = (
        "UPDATE api_keys SET note = 'x'",
        "DELETE FROM api_key_revocations",
        "UPDATE api_key_revocations SET revoked_by = 'x'",
    )
    assert [change for change in changes if accepted(world, change)] == []


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"gates": ["no-bot"]}, "no gate 'no-bot'"),
        ({"gates": []}, "one gate at least"),
        ({"may": []}, "at least one of decide, label, read"),
        ({"may": ["decide", "write"]}, "at least one of decide, label, read"),
        ({"note": "x" * 501}, "the note has 501"),
        ({"by": "x" * 201}, "the name has 201"),
        ({"expires_at": START - timedelta(days=1)}, "in the future"),
    ],
)
def test_keys_that_cannot_be(world: World, changes: dict[str, Any], detail: str) -> None:
    with pytest.raises(UsageError, match=detail):
        create(world, **changes)
    assert world.store.api_keys.list() == []


def test_a_key_is_revoked_once_and_only_if_it_is_there(world: World) -> None:
    key, _ = create(world)
    world.store.api_keys.revoke(key.id, by="ana", reason="over")
    with pytest.raises(UsageError, match="revoked already"):
        world.store.api_keys.revoke(key.id, by="ana", reason="again")
    with pytest.raises(UsageError, match="no API key 'ffffffffffff'"):
        world.store.api_keys.revoke("ffffffffffff", by="ana", reason="over")


@pytest.mark.parametrize(
    "change",
    [
        "digest = '1'",
        "rate_requests = 5",
        "rate_requests = 0, rate_seconds = 1",
        "expires_at = created_at",
        "may = ''",
    ],
)
def test_rules_that_the_database_keeps(world: World, change: str) -> None:
    create(world)
    place = "" if world.store._database.sqlite else " ON api_keys"
    down = f"DROP TRIGGER append_only_api_keys_update{place}"
    assert accepted(world, down, "UPDATE api_keys SET note = 'x'")
    assert not accepted(world, down, f"UPDATE {api_keys.name} SET {change}")
