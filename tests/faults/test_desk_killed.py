"""Case 29: two people and a clerk at one desk, killed again and again; each batch gets exactly one outcome, or goes on waiting."""

import random
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from streamer import wiring
from streamer.errors import Unavailable
from streamer.events.actions import decode_action
from streamer.events.desk import decode_desk
from streamer.failpoints import Failpoints, parse
from streamer.gates.batch_key import BatchKey
from streamer.store import Store
from streamer.store.desk.release_desk import Reject, Release
from tests.faults.matrix import LONG
from tests.integration.audit.history import Scribe, event, scribing, settings_for, verify

GATE = "front"
SECONDS = 600.0
KILLS = 50 if LONG else 2
PER_KILL = 12
SEED = 20261123


def somebody(url: str, name: str, seed: int, *, ahead: float = 0) -> subprocess.Popen[str]:
    """A process at the desk that has begun."""
    made = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.desk_process", url, name, str(seed), str(ahead)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert made.stdout.readline() == "ready\n", made.communicate()
    return made


def hold(scribe: Scribe, first: int, count: int) -> None:
    scribe.deliver(event(GATE, n) for n in range(first, first + count))


@pytest.mark.parametrize(
    "migrated",
    [
        pytest.param("migrated_sqlite_url", marks=pytest.mark.long),
        pytest.param("migrated_postgres_url", marks=pytest.mark.postgres),
    ],
)
def test_killed_at_any_moment(migrated: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url: str = request.getfixturevalue(migrated)
    settings, draw = settings_for(url, tmp_path), random.Random(SEED)
    with wiring.open_store(settings) as store:
        scribe = Scribe(store, settings)
        scribe.gate(GATE, hold_action="escalate", desk_deadline_seconds=SECONDS)
        team = {
            name: somebody(url, name, number, ahead=SECONDS + 60 if name == "clerk" else 0)
            for number, name in enumerate(("ana", "ben", "clerk"))
        }
        try:
            for kill in range(KILLS):
                hold(scribe, kill * PER_KILL, PER_KILL)
                time.sleep(draw.uniform(0, 0.1))
                name = draw.choice(list(team))
                victim = team[name]
                assert victim.poll() is None, victim.communicate()
                victim.kill()
                said = victim.communicate(timeout=240)
                assert "Traceback" not in said[1], said
                team[name] = somebody(url, name, SEED + kill, ahead=SECONDS + 60 if name == "clerk" else 0)
        finally:
            for one in team.values():
                one.kill()
                one.communicate(timeout=240)
        late = timedelta(seconds=SECONDS + 60)
        store.desk._clock = lambda: wiring.now() + late
        deadline = time.monotonic() + 60
        while store.desk.waiting(limit=1) and time.monotonic() < deadline:
            store.desk.reject_overdue(store.leases.of_desk())  # a killed clerk's lease has to expire
            time.sleep(0.2)
        check(store, KILLS * PER_KILL)
    report = verify(settings, outside=[])
    # The clerk's clock is ahead of everybody else's: what is overdue by it alone may not be by the record's.
    assert report.faults == ()
    assert report.counts["outcomes at the desk"] == KILLS * PER_KILL


def check(store: Store, batches: int) -> None:
    """Every batch has exactly one outcome, one message that says it, and one text where something was released."""

    def rows(query: str) -> list[tuple[object, ...]]:
        with store._database.reading() as connection:
            return [tuple(row) for row in connection.execute(sa.text(query))]

    outcomes = dict(rows("SELECT id, action FROM desk_outcomes"))
    assert len(outcomes) == batches
    assert rows("SELECT count(*) FROM desk_items") == [(0,)]
    sealed = rows("SELECT count(*) FROM control_log WHERE kind = 'desk_outcomes'")
    assert sealed == [(batches,)]
    texts = [one for (one,) in rows("SELECT outcome FROM desk_texts")]
    assert sorted(texts) == sorted(one for one, action in outcomes.items() if action == "released")
    messages = [one for one in store.unpublished([], limit=10_000) if one.topic == "streamer.desk"]
    events = [decode_desk(one.value) for one in messages]
    assert sorted(one.desk_id for one in events) == sorted(outcomes)
    for one in events:
        key = BatchKey(one.gate, one.batch_id, one.attempt)
        assert store.desk.state(key).outcome == one  # type: ignore[union-attr]
        action = store.action(key)
        assert decode_action(action.action).action_id == one.action_id
    assert {one.by for one in events} >= {None, "account:ana", "account:ben"} or batches < 100


@pytest.mark.parametrize("point", ["in_transaction", "after_transaction"])
def test_a_reply_that_is_lost(point: str, migrated_sqlite_url: str, tmp_path: Path) -> None:
    """The database is away before the commit, or after it: the same form, sent again, has the same end."""
    with scribing(tmp_path, migrated_sqlite_url) as (settings, store, scribe):
        scribe.gate(GATE, hold_action="escalate", desk_deadline_seconds=SECONDS)
        hold(scribe, 0, 2)
        keys = [BatchKey(GATE, f"batch-{n}", 1) for n in range(2)]
        for key, act in zip(keys, (Release(response_id="r1", text="new"), Reject()), strict=True):
            store._database.failpoint = Failpoints(parse(f"{point}=away"))
            with pytest.raises(Unavailable):
                store.desk.decide(key, act, by="account:ana")
            recorded = store.desk.state(key).outcome  # type: ignore[union-attr]
            assert (recorded is not None) == (point == "after_transaction")
            again = store.desk.decide(key, act, by="account:ana")
            assert recorded in (None, again)
        check(store, 2)
    assert verify(settings, outside=[]).faults == ()
