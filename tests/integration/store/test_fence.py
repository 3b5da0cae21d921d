"""Once a policy is written, nothing is committed that an older one decided; and no ship past its deadline."""

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamer.cli import main
from streamer.errors import Outdated, Unavailable
from streamer.events.topics import Topics
from streamer.gates.policy import Policy
from streamer.journal import BatchDecision, OutboxMessage
from streamer.store import Store
from streamer.store.db import engine
from streamer.store.policies import fence
from tests.integration.store.conftest import START, World, dead_letter_message

SHIPS = ("ship", "ship")
GATE = "support-bot"


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    made = new_world()
    made.gate(unit="response")
    return made


@pytest.fixture
def postgres_world(migrated_postgres_url: str) -> Iterator[World]:
    world = World(migrated_postgres_url)
    world.gate(unit="response")
    yield world
    world.close()


def close(world: World, store: Store | None = None) -> Policy:
    return (store or world.store).policies.close(GATE, by="ana", reason="an incident")


def written(world: World) -> list[Any]:
    return world.rows("SELECT (SELECT count(*) FROM batches), (SELECT count(*) FROM outcomes)")


def test_what_an_older_policy_decided_is_not_committed(world: World):
    lease = world.lease()
    group = [world.decision(0), world.decision(1, actions=SHIPS), world.dead(2)]
    closed = close(world)
    with pytest.raises(Outdated, match="support-bot got policy 2 after its batches were decided by 1"):
        world.commit(world.slice(lease, *group))
    assert written(world) == [(0, 0)]
    again = [world.decision(0, policy=closed), world.decision(1, policy=closed), world.dead(2)]
    assert world.commit(world.slice(lease, *again)) == [["decision", "decision", "dead_letter"]]


def test_any_new_policy_outdates_decisions_and_only_those_of_its_gate(world: World):
    lease, other = world.lease(), world.lease(1)
    first = world.policy
    elsewhere = world.gate("other")
    world.store.gates.revise(GATE, {"alpha": 0.01}, by="ana", reason="stricter")
    assert world.commit(world.slice(other, world.decision(0, policy=elsewhere, number=1))) == [["decision"]]
    with pytest.raises(Outdated):
        world.commit(world.slice(lease, world.decision(0, policy=first)))


def test_a_repeat_of_what_was_decided_before_is_answered_under_any_policy(world: World):
    lease = world.lease()
    world.commit(world.slice(lease, world.decision(0, "b", actions=SHIPS)))
    stale = world.decision(1, "b", actions=SHIPS)
    close(world)
    outcomes = (stale, world.redelivery(2, "b"), world.decision(3, "b", content="two"))
    kinds = world.commit(world.slice(lease, *outcomes, expected=1))
    assert kinds == [["duplicate", "duplicate", "conflict"]]


def test_a_commit_whose_answer_was_lost_is_found_after_a_closing(world: World):
    lease = world.lease()
    piece = world.slice(lease, world.decision(0, actions=SHIPS))
    assert world.commit(piece) == [["decision"]]
    close(world)
    assert world.commit(piece) == [["decision"]]


def test_a_newer_policy_that_the_decider_refused_does_not_count_until_another_comes(world: World):
    lease = world.lease()
    close(world)
    assert world.commit(world.slice(lease, world.decision(0, newest_seen=2))) == [["decision"]]
    close(world)
    with pytest.raises(Outdated):
        world.commit(world.slice(lease, world.decision(1, newest_seen=2), expected=1))


def test_a_ship_past_its_deadline_is_not_committed_and_a_held_one_is(new_world: Callable[..., World]):
    world = new_world()
    world.gate(unit="response", decision_deadline_seconds=60.0)
    lease = world.lease()
    world.clock.now = START + timedelta(seconds=50)
    assert world.commit(world.slice(lease, world.decision(0, actions=SHIPS))) == [["decision"]]
    world.clock.now = START + timedelta(seconds=60)
    for actions in (SHIPS, ("ship", "abstain")):
        with pytest.raises(Outdated, match="the deadline of batch b0-1"):
            world.commit(world.slice(lease, world.decision(1, actions=actions), expected=1))
    assert world.commit(world.slice(lease, world.decision(1), expected=1)) == [["decision"]]


def test_the_deadline_of_a_batch_without_a_date_counts_from_its_record(new_world: Callable[..., World]):
    world = new_world()
    world.gate(unit="response", decision_deadline_seconds=60.0)
    lease = world.lease()
    world.clock.now = START + timedelta(seconds=50)
    made = replace(world.record(0), timestamp_ms=int(START.timestamp() * 1000))
    undated = world.decision(0, actions=SHIPS, created_at=None, record=made)
    late = msgspec.structs.replace(undated, decided_at=START + timedelta(seconds=61))
    for one, now in ((undated, 70), (late, 50)):
        world.clock.now = START + timedelta(seconds=now)
        with pytest.raises(Outdated, match="the deadline of batch b0-0"):
            world.commit(world.slice(lease, one))
    world.clock.now = START + timedelta(seconds=50)
    assert world.commit(world.slice(lease, undated)) == [["decision"]]
    assert world.rows("SELECT timestamp_ms FROM decisions") == [(made.timestamp_ms,)]
    assert world.store.evidence.log_faults() == []


def test_no_ship_is_committed_past_the_deadline_that_its_record_brought(new_world: Callable[..., World]):
    world = new_world()
    world.gate(unit="response")
    lease = world.lease()
    made = replace(world.record(0), deadline_ms=int((START + timedelta(seconds=60)).timestamp() * 1000))
    ships = msgspec.structs.replace(world.decision(0, actions=SHIPS, record=made), decided_at=START)
    world.clock.now = START + timedelta(seconds=60)
    with pytest.raises(Outdated, match="the deadline of batch b0-0"):
        world.commit(world.slice(lease, ships))
    world.clock.now = START + timedelta(seconds=50)
    assert world.commit(world.slice(lease, ships)) == [["decision"]]
    assert world.rows("SELECT deadline_ms FROM decisions") == [(made.deadline_ms,)]
    assert world.store.evidence.log_faults() == []


def test_where_no_deadline_is_set_no_timestamp_is_kept(world: World):
    world.keep(world.decision(0))
    assert world.rows("SELECT timestamp_ms FROM decisions") == [(None,)]


def test_the_deadline_is_looked_at_when_the_commit_ends(new_world: Callable[..., World]):
    """Not when it began: a table may have been locked for a minute in between."""
    world = new_world()
    world.gate(unit="response", decision_deadline_seconds=60.0)
    lease = world.lease()

    def slow(record: Any, code: str, detail: str) -> OutboxMessage:
        world.clock.now += timedelta(seconds=120)
        return dead_letter_message(record, code, detail)

    store = world.open(dead_letter_message=slow)
    ship, conflict = world.decision(0, actions=SHIPS), world.decision(1, "b0-0", content="other")
    with pytest.raises(Outdated, match="deadline"):
        world.commit(world.slice(lease, ship, conflict), store=store)
    assert written(world) == [(0, 0)]


def pausing(world: World, point: str, seconds: float) -> tuple[Store, threading.Event]:
    """A store whose transactions pause just before they commit, and what tells that one has come there."""
    there = threading.Event()

    def failpoint(name: str) -> None:
        if name == point:
            there.set()
            time.sleep(seconds)

    return world.open(failpoint=failpoint), there


def test_closing_waits_for_a_commit_that_has_passed_the_fence(postgres_world: World):
    world = postgres_world
    lease = world.lease()
    store, there = pausing(world, "in_transaction", 1)
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(world.commit, world.slice(lease, world.decision(0, actions=SHIPS)), store=store)
        assert there.wait(240)
        close(world)
        assert written(world) == [(1, 1)], "it was committed before the closing returned"
        assert commit.result(240) == [["decision"]]


def test_a_commit_waits_for_a_closing_that_is_under_way_and_is_outdated_by_it(postgres_world: World):
    world = postgres_world
    lease = world.lease()
    store, there = pausing(world, "in_transaction", 1)
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(close, world, store)
        assert there.wait(240)
        with pytest.raises(Outdated):
            world.commit(world.slice(lease, world.decision(0, actions=SHIPS)))
        assert closing.result(240).state == "closed"
    assert written(world) == [(0, 0)]


def test_closing_does_not_wait_for_a_commit_that_waits_for_another_lock(postgres_world: World):
    world = postgres_world
    lease = world.lease()
    slices = world.slice(lease, world.decision(0, actions=SHIPS))
    with ThreadPoolExecutor(1) as pool, world.store._database.engine.connect() as other:
        other.exec_driver_sql("LOCK TABLE decisions IN SHARE ROW EXCLUSIVE MODE")
        commit = pool.submit(world.commit, slices)
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'decisions'::regclass"
        while world.rows(waits) == [(0,)]:
            assert not commit.done()
            time.sleep(0.05)
        close(world)
        assert not commit.done()
        other.rollback()
        with pytest.raises(Outdated):
            commit.result(240)
    assert written(world) == [(0, 0)]


def test_commits_without_end_do_not_keep_a_gate_open(postgres_world: World):
    """Three workers of which one or another is always between its check and the end of its commit."""
    world = postgres_world
    stop = threading.Event()

    def work(number: int) -> int:
        store, _ = pausing(world, "in_transaction", 0.6)
        lease, offset = world.lease(number, store=store), 0
        time.sleep(number * 0.2)
        while not stop.is_set():
            decision = world.decision(offset, number=number, actions=SHIPS)
            try:
                world.commit(world.slice(lease, decision, expected=offset), store=store)
            except Outdated:
                break
            offset += 1
        return offset

    with ThreadPoolExecutor(3) as pool:
        workers = [pool.submit(work, number) for number in range(3)]
        time.sleep(1.5)
        try:
            close(world)
            ships = written(world)
            ended = [one.result(240) for one in workers]
        finally:
            stop.set()
    assert written(world) == ships == [(sum(ended), sum(ended))]


def test_a_process_that_was_stopped_behind_the_fence_is_outwaited(
    postgres_world: World, monkeypatch: pytest.MonkeyPatch
):
    """The server ends its session; closing waits longer than that, though not longer than that for other locks."""
    monkeypatch.setattr(engine, "BUSY_SECONDS", 1)
    world = World(postgres_world.url)
    world.policy = postgres_world.policy
    lease = world.lease()
    store, there = pausing(world, "in_transaction", 5)
    patient, _ = engine.FROZEN_SECONDS, monkeypatch.setattr(engine, "FROZEN_SECONDS", 3)
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(world.commit, world.slice(lease, world.decision(0, actions=SHIPS)), store=store)
        assert there.wait(240)
        monkeypatch.setattr(engine, "FROZEN_SECONDS", patient)
        assert close(world).state == "closed"
        with pytest.raises(Unavailable):
            commit.result(240)
    assert written(world) == [(0, 0)]
    world.close()


@pytest.mark.parametrize(
    ("table", "closed"),
    [("policies", False), ("pending_messages", True)],
    ids=["before closing", "while counting"],
)
def test_whoever_closes_under_a_lock_reads_whether_the_gate_is_closed(
    postgres_world: World,
    table: str,
    closed: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
):
    monkeypatch.setenv("STREAMER_DATABASE_URL", postgres_world.url)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engine, "BUSY_SECONDS", 1)
    words = ("threshold", "close", "support-bot", "--reason", "a complaint")
    with postgres_world.store._database.engine.connect() as other:
        other.exec_driver_sql("SET idle_in_transaction_session_timeout = 0")
        other.exec_driver_sql(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        status = main(words)
        captured = capsys.readouterr()
        text = " ".join((captured.out + captured.err).split())
        as_json = main([*words, "--json"])
        printed = capsys.readouterr().out
        other.rollback()
        other.invalidate()
    if closed:
        assert (status, as_json) == (0, 0)
        assert "is closed, not calibrated (version 2)" in text
        assert "cannot be counted now" in text
        assert "outbox not known now" in text
        assert set(json.loads(printed)["waiting"].values()) == {None}
    else:
        assert (status, as_json) == (1, 1)
        assert "may still be open" in text
        assert not printed
    assert (postgres_world.store.policies.newest("support-bot").reason == "a complaint") is closed
    assert main(words) == 0
    assert "outbox nothing" in " ".join(capsys.readouterr().out.split())


def test_gates_without_number_take_few_locks(postgres_world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fence, "_LOCKS", 4)
    world = postgres_world
    policies = [world.gate(f"gate-{number}") for number in range(20)]
    held: list[Any] = []

    def look(name: str) -> None:
        if name == "in_transaction":
            held.extend(world.rows("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"))

    store = world.open(failpoint=look)
    lease = world.lease()
    group = [world.decision(offset, policy=policy) for offset, policy in enumerate(policies)]
    world.commit(world.slice(lease, *group), store=store)
    assert 1 < held[0][0] <= 4


def test_closing_and_committing_from_all_sides_ends_without_a_deadlock(world: World):
    """Several gates in one commit, in any order, while others write policies of all of them."""
    names = [f"gate-{number}" for number in range(4)]
    for name in names:
        world.gate(name, unit="response")
    stop = threading.Event()

    def work(number: int) -> int:
        store = world.open()
        lease, offset, outdated = world.lease(number, store=store), 0, 0
        newest = {name: store.policies.newest(name) for name in names}
        while not stop.is_set():
            order = names[:: 1 if number % 2 else -1]
            group: list[BatchDecision] = [
                world.decision(offset + i, policy=newest[name], number=number, at=START)
                for i, name in enumerate(order)
            ]
            try:
                world.commit(world.slice(lease, *group, expected=offset), store=store)
                offset += len(group)
            except Outdated:
                outdated += 1
                newest = {name: store.policies.newest(name) for name in names}
        return outdated

    def writer(number: int) -> int:
        store = world.open()
        for turn in range(5):
            for name in names[:: 1 if number else -1]:
                store.policies.close(name, by="ana", reason=f"turn {turn}")
        return 0

    with ThreadPoolExecutor(5) as pool:
        workers = [pool.submit(work, number) for number in range(3)]
        try:
            for one in [pool.submit(writer, number) for number in range(2)]:
                one.result(120)
        finally:
            stop.set()
        assert sum(one.result(60) for one in workers) > 0
    assert world.store.evidence.log_faults() == []
    assert world.store.policies.newest(names[0]).version == 11


def test_ships_that_wait_to_be_published_are_counted_by_gate(world: World):
    store, lease = world.store, world.lease()
    other = world.gate("other", unit="response")
    shadow = world.gate("shadow", unit="response", mode="shadow")
    ours = store.policies.newest(GATE)

    def action(identity: str) -> dict[str, Any]:
        headers = (("ce_id", identity.encode()),)
        return {
            "action_id": identity,
            "action": OutboxMessage(Topics().actions, b"k", identity.encode(), headers),
        }

    ids = [str(uuid.UUID(int=number)) for number in range(6)]
    group = [
        world.decision(0, policy=ours, actions=SHIPS, **action(ids[0])),
        world.decision(1, policy=ours, actions=("ship", "abstain"), **action(ids[1])),
        world.decision(2, policy=ours, **action(ids[2])),
        world.decision(3, policy=other, actions=SHIPS, **action(ids[3])),
        world.decision(4, policy=shadow, actions=SHIPS, **action(ids[4])),
        # A refused record may bring any header.
        replace(
            world.dead(5),
            message=OutboxMessage("streamer.dead-letters", None, b"", (("ce_id", ids[0].encode()),)),
        ),
        replace(world.dead(6), message=OutboxMessage("streamer.dead-letters", None, b"", (("ce_id", None),))),
    ]
    world.commit(world.slice(lease, *group))
    waiting = [store.reports.unpublished_ships(name) for name in (GATE, "other", "shadow", "nobody")]
    assert waiting == [2, 1, 0, 0]
    rows = store.unpublished([lease.partition], limit=100)
    store.mark_published([row for row in rows if row.value in (ids[0].encode(), ids[3].encode())])
    store.park(next(row for row in rows if row.value == ids[1].encode()), "too large")
    assert [store.reports.unpublished_ships(name) for name in (GATE, "other")] == [0, 0]
    # The same batch again: its action is to be published again.
    again = msgspec.structs.replace(group[0], record=world.record(7))
    assert world.commit(world.slice(lease, again, expected=7)) == [["duplicate"]]
    assert store.reports.unpublished_ships(GATE) == 1
