"""A group of many gates of which one gets policies all the time: only its batches are decided again, and it is committed."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from streamer.deciding.decider import BatchDecider
from streamer.deciding.policy_book import PolicyBook
from streamer.errors import Outdated, Unavailable
from streamer.events.limits import Limits
from streamer.events.topics import Topics
from streamer.gates.settings import GateSettings
from streamer.journal import BatchDecision, Outcome, Partition, Record
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.store.db import engine
from streamer.stream.group_commit import GroupCommit
from streamer.stream.hooks import Hooks
from streamer.stream.intake import FetchBudget, Fetched, Intake
from streamer.stream.isolation import DeadLetterCap, DeadLetterLimits
from tests.counting_encoder import CountingEncoder
from tests.integration.store.conftest import World, interrupted
from tests.made import a_batch

GATES = ("a", "b", "c")
PARTITION = Partition("log", Topics().responses, 0)
GROUP = 12


class CountingDecider(BatchDecider):
    """The decider, and the gates whose records it was given, call by call."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.calls: list[list[str]] = []

    def outcomes(self, records: Sequence[Record], outdated: Sequence[Outcome] = ()) -> list[Outcome]:
        self.calls.append([json.loads(record.value or b"")["gate"] for record in records])
        return super().outcomes(records, outdated)


def record(offset: int) -> Record:
    event = a_batch(GATES[offset % len(GATES)], offset, [f"{offset} answers {i}" for i in range(2)])
    return Record(PARTITION, offset, b"k", event, (), 0)


async def test_only_batches_of_gates_with_a_new_policy_are_decided_again(new_world: Callable[..., World]):
    store, encoder = new_world().store, CountingEncoder()
    settings = GateSettings(encoder=encoder.identity.id, audit_probability=0.5, unit="response")
    for name in GATES:
        store.gates.create(name, settings, by="ana", reason="new")
    book = PolicyBook(store.policies.active, limits=Limits())
    book.refresh()
    decider = CountingDecider(
        book=book,
        known=store.known,
        encoder=CachedEncoder(encoder, capacity_texts=1),
        topics=Topics(),
        limits=Limits(),
        clock=lambda: datetime.now(UTC),
    )
    due = iter([("b",), ("b", "c"), ("c",)])

    def failpoint(name: str) -> None:
        if name == "before_commit":
            for gate in next(due, ()):
                store.policies.close(gate, by="ana", reason="an incident")

    budget = FetchBudget(max_records=1000, max_bytes=2**20)
    intake = Intake(budget)
    intake.install(store.lease([PARTITION]).values(), now=0.0)
    flow = budget.begin_flow()
    for offset in range(GROUP):
        intake.offer(Fetched(record(offset), offset, flow, 100), now=0.0)
    with ThreadPoolExecutor(1) as scoring, ThreadPoolExecutor(1) as pool:
        commits = GroupCommit(
            intake,
            decider,
            store.commit,
            score_executor=scoring,
            executor=pool,
            max_records=1000,
            max_bytes=2**20,
            cap=DeadLetterCap(DeadLetterLimits()),
            hooks=Hooks(failpoint=failpoint),
            on_commit=lambda: None,
        )
        running = asyncio.create_task(commits.run())
        await intake.drained()
        running.cancel()
    wanted = [(12, "abc"), (4, "b"), (8, "bc"), (4, "c")]
    assert [(len(call), "".join(sorted(set(call)))) for call in decider.calls] == wanted
    assert encoder.texts == 2 * GROUP
    assert store.evidence.log_faults() == []


@pytest.mark.parametrize("firm", [False, True])
def test_a_firm_commit_keeps_newer_policies_out(postgres_world: World, firm: bool):
    """Else policies that come faster than a group is written would keep it from being committed for ever."""
    world = postgres_world
    with ThreadPoolExecutor(1) as pool:
        closing: list[Any] = []

        def close() -> None:
            closing.append(pool.submit(world.store.policies.close, "support-bot", by="ana", reason="now"))
            waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while not closing[0].done() and world.rows(waits) == [(0,)]:
                time.sleep(0.02)

        store = interrupted(world, close)
        piece = world.slice(world.lease(), world.decision(0, "b"), world.decision(1, "b", content="other"))
        if firm:
            kinds = store.commit([piece], now=world.clock(), firm=True)
            assert kinds == [["decision", "conflict"]]
        else:
            with pytest.raises(Outdated):
                store.commit([piece], now=world.clock())
        assert closing[0].result(240).state == "closed"


def test_a_closing_waits_for_no_firm_commit_that_waits_for_a_lock(
    postgres_world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine, "BUSY_SECONDS", 1000)  # any other wait outlasts this test
    world = postgres_world
    piece = world.slice(world.lease(), world.decision(0))
    with ThreadPoolExecutor(1) as pool, world.store._database.engine.connect() as connection:
        connection.exec_driver_sql("LOCK TABLE outcomes IN SHARE ROW EXCLUSIVE MODE")
        commit = pool.submit(world.store.commit, [piece], now=world.clock(), firm=True)
        with pytest.raises(Unavailable):
            commit.result(200)
        assert world.store.policies.close("support-bot", by="ana", reason="now").state == "closed"
        connection.rollback()


def test_every_gate_that_is_outdated_is_named(new_world: Callable[..., World]):
    world = new_world()
    policies = [world.gate(name, decision_deadline_seconds=60.0, unit="response") for name in GATES]
    for name in GATES[:2]:
        world.store.policies.close(name, by="ana", reason="an incident")
    lease = world.lease()
    group: list[BatchDecision] = [
        world.decision(offset, policy=policy, actions=("ship", "ship"))
        for offset, policy in enumerate(policies)
    ]
    with pytest.raises(Outdated) as caught:
        world.commit(world.slice(lease, *group))
    assert caught.value.gates == {"a", "b"}
