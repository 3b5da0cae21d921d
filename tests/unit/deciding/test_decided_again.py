"""A group whose policies were superseded before its commit: decided again by the newest, and encoded once."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from streamer.deciding.policy_book import PolicyBook
from streamer.events.actions import decode_action
from streamer.events.limits import Limits
from streamer.events.topics import Topics
from streamer.gates.batch_key import BatchKey
from streamer.gates.policy import ActivePolicy, Policy
from streamer.journal import BatchDecision, Outcome, Partition, Record, Redelivery
from streamer.scoring.encoders.encoder import CachedEncoder
from tests.counting_encoder import CountingEncoder
from tests.made import a_decider
from tests.unit.deciding.test_decider import active, batch, raw

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
OPEN = replace(
    active("bot", encoder=CountingEncoder.identity.id, audit_probability=0.5, unit="response").policy,
    version=1,
    state="open",
    threshold=None,
)
CLOSED = replace(OPEN, version=2, state="closed")


class World:
    """One gate, a decider whose encoder remembers nothing, and a clock that the test moves."""

    def __init__(self) -> None:
        self.policy = ActivePolicy(OPEN, b"s" * 32)
        self.now = NOW
        self.known: dict[BatchKey, bytes] = {}
        self.encoder = CountingEncoder()
        self.book = PolicyBook(lambda _names: {"bot": self.policy}, limits=Limits())
        encoder = CachedEncoder(self.encoder, capacity_texts=1)
        self.decider = a_decider(self.book, lambda _keys: self.known, encoder=encoder, clock=lambda: self.now)
        self.book.refresh()

    def in_force(self, policy: Policy) -> None:
        self.policy = ActivePolicy(policy, b"s" * 32)


@pytest.fixture
def world() -> World:
    return World()


def records(count: int = 6, **fields: Any) -> list[Record]:
    values = [
        raw(batch(texts=[f"{n} answers {i}" for i in range(3)], batch_id=f"b{n}") | fields)
        for n in range(count)
    ]
    return [Record(Partition("log", Topics().responses, 0), n, b"k", v, (), 0) for n, v in enumerate(values)]


def decisions(outcomes: Sequence[Outcome]) -> list[BatchDecision]:
    assert all(isinstance(one, BatchDecision) for one in outcomes)
    return [one for one in outcomes if isinstance(one, BatchDecision)]


def test_the_newest_policy_decides_and_no_text_is_encoded_again(world: World) -> None:
    group = records()
    before = decisions(world.decider.outcomes(group))
    encoded = world.encoder.texts
    world.in_force(CLOSED)
    world.now += timedelta(seconds=5)
    after = decisions(world.decider.outcomes(group, before))
    assert encoded == world.encoder.texts == 18
    assert {(one.outcome, one.reason) for one in before} == {("ship", "scored")}
    assert {(one.outcome, one.reason, one.policy.version) for one in after} == {("abstain", "closed", 2)}
    assert {one.decided_at for one in after} == {world.now}
    for old, new in zip(before, after, strict=True):
        wanted = [(r.score, r.raw_energy) for r in old.responses]
        assert [(r.score, r.raw_energy) for r in new.responses] == wanted
        assert (new.cloud, new.embedding_source) == (old.cloud, old.embedding_source)
        wanted = (old.sampled, [r.drawn for r in old.responses])
        assert (new.sampled, [r.drawn for r in new.responses]) == wanted
        assert decode_action(new.action.value).policy.version == 2


def test_deciding_again_is_as_if_the_new_policy_had_been_there_at_once(world: World) -> None:
    """For whatever is set: the same decision as the one of a worker that knew it from the start."""
    group = records(created_at=NOW.isoformat())
    for changes in (
        {"unit": "best"},
        {"unit": "batch", "audit_probability": 1.0},
        {"scorer": "external", "encoder": "none"},
        {"encoder": "other@12345678"},
        {"max_attempts": 2, "hold_action": "escalate"},
        {"decision_deadline_seconds": 3.0},
    ):
        world.in_force(OPEN)
        worker = World()
        before = worker.decider.outcomes(group)
        wanted = replace(CLOSED, state="cut", threshold=0.4, settings=replace(OPEN.settings, **changes))
        other = World()
        for one in (worker, other):
            one.in_force(wanted)
            one.now += timedelta(seconds=5)
        other.book.refresh()
        assert worker.decider.outcomes(group, before) == other.decider.outcomes(group), changes


def test_what_the_old_policy_did_not_score_is_scored_when_the_new_one_asks_for_it(world: World) -> None:
    world.in_force(replace(OPEN, version=2, settings=replace(OPEN.settings, encoder="other@12345678")))
    world.book.refresh()
    group = records()
    before = decisions(world.decider.outcomes(group))
    assert {one.reason for one in before} == {"encoder_mismatch"}
    world.in_force(replace(OPEN, version=3))
    after = decisions(world.decider.outcomes(group, before))
    assert {(one.outcome, one.reason) for one in after} == {("ship", "scored")}


def test_what_was_decided_by_another_meanwhile_is_a_repeat(world: World) -> None:
    group = records(count=2)
    before = decisions(world.decider.outcomes(group))
    world.known = {before[0].key: before[0].content_hash}
    again = world.decider.outcomes(group, before)
    assert [type(one) for one in again] == [Redelivery, BatchDecision]


def test_a_newer_policy_that_is_refused_is_seen_and_not_obeyed(world: World) -> None:
    """Else the commit would find the same decision outdated for ever."""
    group = records(count=1)
    before = decisions(world.decider.outcomes(group))
    world.policy = ActivePolicy(OPEN, b"s" * 32, newest_seen=9)
    (after,) = decisions(world.decider.outcomes(group, before))
    assert (before[0].newest_seen, after.newest_seen, after.policy) == (0, 9, OPEN)
    assert after.outcome == "ship"
