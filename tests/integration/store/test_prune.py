"""Forgetting: no text is left anywhere, and everything that was recorded of it still verifies and still counts."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from streamer.cli import main
from streamer.errors import UsageError
from streamer.journal import OutboxMessage
from streamer.store import SIX_MONTHS, create_roles, migrate, prune
from tests.integration.store.conftest import START, World
from tests.told import Told

LATER = START + timedelta(days=200)
OLD = timedelta(days=190)
SECRET = "wholly private words"


@pytest.fixture
def recorded(world: World) -> World:
    return filled(world)


def filled(world: World) -> World:
    """An old half with texts in every place that has some, and a young half."""
    action = OutboxMessage("streamer.actions", b"k", b"names and numbers", ())
    lease, labels = world.lease(), world.lease(topic="streamer.labels")
    world.commit(
        world.slice(
            lease,
            world.decision(0, "old", content=SECRET, action=action),
            world.decision(1, "old", content="something else"),
            world.dead(2, detail=f"it said {SECRET}"),
        ),
        world.slice(labels, world.label(0.5, "old", offset=0)),
    )
    waiting = world.store.unpublished([world.partition()], limit=10)
    world.store.mark_published(waiting[:2])
    world.store.park(waiting[2], "too large")
    world.clock.now = LATER
    young = world.decision(3, "young", content="young words", at=LATER)
    world.commit(world.slice(lease, young, expected=3))
    return world


def pruned(world: World, **options: Any) -> Any:
    return prune(world.url, older_than=OLD, now=LATER, **options)


def everything(world: World) -> str:
    """Every value of every table, as text."""
    with world.store._database.reading() as connection:
        names = sa.inspect(connection).get_table_names()
        return repr(
            [[tuple(row) for row in connection.execute(sa.text(f'SELECT * FROM "{n}"'))] for n in names]
        )


def test_texts_go_and_what_was_decided_stays(recorded: World):
    assert SECRET in everything(recorded)
    counted = pruned(recorded, dry_run=True)
    assert (counted.batches, counted.dead_letters, counted.messages, counted.parked) == (1, 2, 1, 1)
    assert SECRET in everything(recorded)
    decided = recorded.rows(
        "SELECT batch_id, outcome, best_score, policy_version FROM v_decisions ORDER BY 1"
    )
    assert pruned(recorded) == counted
    left = everything(recorded)
    assert SECRET not in left
    assert "prompt young words" in left
    assert (
        recorded.rows("SELECT batch_id, outcome, best_score, policy_version FROM v_decisions ORDER BY 1")
        == decided
    )
    assert recorded.store.evidence.log_faults() == []
    assert pruned(recorded).total == 0


def test_sqlite_keeps_no_copy_in_its_file(migrated_sqlite_url: str):
    world = World(migrated_sqlite_url)
    world.gate()
    pruned(filled(world))
    path = world.store._database.url.database
    assert path is not None
    files = list(Path(path).parent.glob(f"{Path(path).name}*"))
    assert files
    for file in files:
        assert SECRET.encode() not in file.read_bytes(), file
    world.close()


def test_an_erased_batch_is_still_known_by_its_key(recorded: World):
    """The same batch in another month and partition is a repeat, too, before its texts are erased and after."""
    lease, elsewhere = recorded.lease(), recorded.lease(1)
    action = OutboxMessage("streamer.actions", b"k", b"the same", ())
    repeats = [
        recorded.decision(n, "old", number=1, content=SECRET, action=action, at=LATER) for n in range(2)
    ]
    assert recorded.commit(recorded.slice(elsewhere, repeats[0])) == [["duplicate"]]
    pruned(recorded)
    assert recorded.commit(recorded.slice(elsewhere, repeats[1], expected=1)) == [["duplicate"]]
    again = recorded.decision(4, "old", content=SECRET, action=action)
    other = recorded.redelivery(5, "old", content="what nobody can compare any more")
    assert recorded.commit(recorded.slice(lease, again, other)) == [["duplicate", "duplicate"]]
    young = recorded.decision(6, "young", content="not what it was")
    assert recorded.commit(recorded.slice(lease, young, expected=6)) == [["conflict"]]
    assert SECRET not in everything(recorded)
    assert recorded.store.evidence.log_faults() == []


def test_it_goes_in_bounded_steps_and_can_be_stopped_between(recorded: World):
    steps: list[str] = []

    def stop(what: str, count: int) -> None:
        assert count == 1
        steps.append(what)
        if what == "dead_letters":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pruned(recorded, progress=stop, chunk=1)
    assert steps == ["batches", "dead_letters"]
    assert recorded.store.evidence.log_faults() == []
    assert pruned(recorded).dead_letters == 1
    assert SECRET not in everything(recorded)
    assert recorded.store.evidence.log_faults() == []


def test_what_is_younger_than_six_months_stays_unless_somebody_means_it(recorded: World):
    for age in (SIX_MONTHS - timedelta(seconds=1), timedelta(0)):
        with pytest.raises(UsageError, match="--sooner-than-six-months"):
            prune(recorded.url, older_than=age, now=LATER)
    young = LATER + timedelta(seconds=60)
    found = prune(recorded.url, older_than=timedelta(seconds=1), now=young, sooner_than_six_months=True)
    assert found.batches == 2


def test_the_command_asks_first_and_says_what_it_did(
    recorded: World, monkeypatch: pytest.MonkeyPatch, told: Told
):
    monkeypatch.setenv("STREAMER_DATABASE_URL", recorded.url)
    monkeypatch.setattr("streamer.wiring.now", lambda: LATER)
    words = ("db", "prune", "--older-than", "190d", "--json")
    assert "nothing was erased: give --yes" in told(*words, status=2).err
    assert json.loads(told(*words, "--dry-run").out)["batches"] == 1
    assert json.loads(told(*words, "--yes").out) == {
        "dry_run": False, "batches": 1, "dead_letters": 2, "judgements": 0, "released": 0, "messages": 1, "parked": 1, "burst_keys": 0,
    }  # fmt: skip
    assert "--sooner-than-six-months" in told("db", "prune", "--older-than", "30d", "--yes", status=2).err
    assert main(["db", "check"]) == 0


def test_on_postgresql_it_takes_the_migrating_role(postgres_database_url: str):
    roles = create_roles(postgres_database_url)
    migrate(postgres_database_url)
    world = World(postgres_database_url)
    world.gate()
    filled(world)
    url = sa.make_url(postgres_database_url)
    members = {}
    for role in (roles.app, roles.migrate):
        name = f"{role}_{url.database}"
        world.tamper(f"CREATE ROLE {name} LOGIN IN ROLE {role}")
        members[role] = url.set(username=name).render_as_string()
    with pytest.raises(UsageError, match=f"lacks the rights to do it: permission denied .* {roles.migrate}"):
        prune(members[roles.app], older_than=OLD, now=LATER)
    assert SECRET in everything(world)
    assert prune(members[roles.migrate], older_than=OLD, now=LATER).batches == 1
    assert SECRET not in everything(world)
    assert world.store.evidence.log_faults() == []
    world.tamper(*(f"DROP ROLE {role}_{url.database}" for role in members))
    world.close()
