"""Closing a gate waits for nobody's work: its rows come first, and the control log has them as soon as its head is free."""

import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from streamer.calibration import Threshold
from streamer.errors import Unavailable
from streamer.gates.policy import MONITOR
from streamer.recalibration.run import PolicyChanged
from streamer.store.calibration.calibration_runs import Calibrations
from streamer.store.db import engine
from streamer.store.labels import revisions
from tests.faults.site import record_threshold
from tests.integration.store.conftest import World
from tests.integration.watching.conftest import DAY, START, Shown, Traffic

GATE = "support-bot"
CHAINED = "SELECT kind, subject FROM control_log ORDER BY leaf_index"
WAITING = "SELECT kind FROM control_queue ORDER BY id"


@pytest.fixture
def world(migrated_postgres_url: str) -> Iterator[World]:
    world = World(migrated_postgres_url)
    world.gate(unit="response")
    yield world
    world.close()


@contextmanager
def held_head(world: World) -> Iterator[sa.Connection]:
    """Somebody holds the head of the control log for as long as the block takes."""
    with world.store._database.engine.begin() as other:
        other.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
        other.exec_driver_sql("SELECT * FROM control_head FOR UPDATE")
        yield other


def close(world: World, reason: str = "an incident") -> Any:
    return world.store.policies.close(GATE, by="ana", reason=reason)


def test_a_gate_closes_while_the_head_of_the_chain_is_held(world: World) -> None:
    lease, decided_before = world.lease(), world.policy
    with held_head(world):
        closed = close(world)
        assert (closed.version, closed.state) == (2, "closed")
        assert world.store.policies.newest(GATE) == closed
        wanted = [("policies",), ("policy_events",), ("policy_events",), ("policy_events",)]
        assert world.rows(WAITING) == wanted
        assert world.commit(world.slice(lease, world.decision(0, policy=closed))) == [["decision"]]
        with pytest.raises(Exception, match="got policy 2 after"):
            world.commit(world.slice(lease, world.decision(1, policy=decided_before), expected=1))
    world.store.policies.chain_closings()
    assert world.rows(WAITING) == []
    assert ("policies", f'["{GATE}",2]') in world.rows(CHAINED)


def test_what_waits_comes_into_the_chain_before_what_is_built_on_it(world: World) -> None:
    with held_head(world):
        close(world, "once")
        close(world, "twice")
    world.store.gates.revise(GATE, {"alpha": 0.01}, by="ana", reason="stricter")
    kinds = [subject for kind, subject in world.rows(CHAINED) if kind == "policies"]
    assert kinds == [f'["{GATE}",{version}]' for version in (1, 2, 3, 4)]
    assert world.rows(WAITING) == []


def test_a_closing_that_is_undone_leaves_nothing_in_the_queue(world: World) -> None:
    def failpoint(name: str) -> None:
        if name == "in_transaction":
            raise RuntimeError("killed here")

    with held_head(world), pytest.raises(RuntimeError):
        world.open(failpoint=failpoint).policies.close(GATE, by="ana", reason="an incident")
    assert world.rows(WAITING) == []
    assert world.store.policies.newest(GATE).version == 1


def paused(world: World, point: str) -> tuple[Any, threading.Event, threading.Event]:
    """A store whose first transaction stops at a point until it is told to go on."""
    there, go_on = threading.Event(), threading.Event()

    def failpoint(name: str) -> None:
        if name == point and not there.is_set():
            there.set()
            assert go_on.wait(240)

    return world.open(failpoint=failpoint), there, go_on


def test_a_gate_closes_while_labels_are_being_imported(world: World) -> None:
    world.keep(world.decision(0))
    store, there, go_on = paused(world, "in_transaction")
    with ThreadPoolExecutor(1) as pool:
        importing = pool.submit(store.labels.add, [world.label(1.0, "b0-0")])
        assert there.wait(240)
        closed = close(world)
        assert not importing.done()
        assert closed.state == "closed"
        go_on.set()
        assert importing.result(60).added == 1
    world.store.policies.chain_closings()
    assert world.rows(WAITING) == []


def test_a_gate_closes_while_a_calibration_run_is_being_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs of a run, which may be many, are written before it has the gate; and it opens nothing that was closed meanwhile."""
    there, go_on = threading.Event(), threading.Event()
    lock = Calibrations._unrevised

    def stopped(*given: Any) -> Any:
        there.set()
        assert go_on.wait(240)
        return lock(*given)

    monkeypatch.setattr(Calibrations, "_unrevised", stopped)
    found = Threshold(state="open", value=-math.inf, alpha=0.05, method="mean", groups=0, guarantee="")
    with ThreadPoolExecutor(1) as pool:
        recording = pool.submit(record_threshold, world.store, GATE, found, expected=1)
        assert there.wait(240)
        with held_head(world):
            assert close(world).version == 2
        assert not recording.done()
        go_on.set()
        with pytest.raises(PolicyChanged, match="got policy 2 while a run was compared with 1"):
            recording.result(60)
    assert world.store.policies.newest(GATE).state == "closed"
    world.store.policies.chain_closings()
    assert world.store.evidence.log_faults() == []


def test_an_alarm_closes_a_gate_while_the_head_of_the_chain_is_held(migrated_postgres_url: str) -> None:
    world = World(migrated_postgres_url)
    traffic = Traffic(world)
    traffic.open_gate()
    traffic.label(traffic.decide(80, rng=np.random.default_rng(11)), lambda _: 1.0)
    with held_head(world):
        traffic.watcher(Shown()).round([world.store.gates.get(GATE)], now=START + DAY / 2)
        policy = world.store.policies.newest(GATE)
        assert (policy.version, policy.state, policy.created_by) == (3, "closed", MONITOR)
        assert ("policies",) in world.rows(WAITING)
    world.store.policies.chain_closings()
    assert world.rows(WAITING) == []
    assert world.store.evidence.log_faults() == []
    world.close()


def test_whoever_changes_a_gate_takes_the_chain_before_the_gate(world: World) -> None:
    """Else a closing would wait for somebody who has the gate and waits for the chain."""
    with ThreadPoolExecutor(1) as pool:
        with held_head(world):
            revising = pool.submit(
                world.store.gates.revise, GATE, {"alpha": 0.01}, by="ana", reason="stricter"
            )
            waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            while world.rows(waits) == [(0,)]:
                assert not revising.done()
            assert close(world).version == 2
            assert not revising.done()
        assert revising.result(60).revision == 2
    assert [version for _, version in versions(world)] == [1, 2, 3]


def versions(world: World) -> list[tuple[str, int]]:
    return [tuple(row) for row in world.rows("SELECT gate, version FROM policies ORDER BY version")]


def test_the_record_is_read_with_the_closing_in_the_chain_or_not_at_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "BUSY_SECONDS", 1)
    with held_head(world):
        close(world)
        with pytest.raises(Unavailable), world.store.evidence.snapshot():
            pytest.fail("a bundle would name a policy that no log has")
    with world.store.evidence.snapshot() as snapshot:
        assert [line["row"]["version"] for line in snapshot.control("policies")] == [1, 2]
        assert list(snapshot.unchained()) == []


def test_an_import_stores_its_labels_in_pieces(
    new_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others come in between: a closing on SQLite, and whoever seals on PostgreSQL."""
    monkeypatch.setattr(revisions, "AT_ONCE", 2)
    world = new_world()
    world.gate(unit="response")
    ended = 0

    def failpoint(name: str) -> None:
        nonlocal ended
        ended += name == "after_transaction"
        if ended == 2:
            raise Unavailable("the database is gone")

    labels = [world.label(1.0, f"b{number}") for number in range(5)]
    with pytest.raises(
        Unavailable, match=r"2 of 5 labels are stored; to store the others, do the same again"
    ):
        world.open(failpoint=failpoint).labels.add(labels)
    again = world.store.labels.add(labels)
    assert (again.added, again.repeated) == (1, 4)
    assert world.rows("SELECT count(*) FROM label_revisions") == [(5,)]
