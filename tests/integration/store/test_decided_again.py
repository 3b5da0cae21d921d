"""Decider and store together: what is outdated at the commit is decided again, once, and then committed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from streamer.deciding.policy_book import PolicyBook, TrustedPolicies
from streamer.errors import Outdated
from streamer.events.limits import Limits
from streamer.events.topics import Topics
from streamer.gates.policy import Policy
from streamer.journal import BatchDecision, Lease, Outcome, Partition, Record, Slice
from streamer.signing.policies import PolicyKeys
from streamer.store import Store
from streamer.store.db.schema import policies
from tests.integration.store.conftest import SETTINGS
from tests.integration.store.test_signed_policies import GATE, Place, cut, keys_of, place, signer
from tests.made import a_batch, a_decider

__all__ = ["place"]

PARTITION = Partition("log", Topics().responses, 0)
DEADLINE = timedelta(seconds=1000)

pytestmark = pytest.mark.expected_errors(r"^streamer\.deciding\.policy_book: deciding\.policy_refused")


class Worker:
    """A decider and a store, without Kafka; something may happen between deciding and committing."""

    def __init__(self, place: Place, keys: PolicyKeys, **settings: Any) -> None:
        self.clock = place.clock
        self.store: Store = place.open(keys)
        wanted = replace(
            SETTINGS, scorer="external", encoder="none", unit="response", audit_probability=1.0, **settings
        )
        self.store.gates.create(GATE, wanted, by="ana", reason="new")
        cut(self.store, 0.5)
        self.book = PolicyBook(
            TrustedPolicies(
                self.store.policies.versions,
                self.store.policies.before,
                keys,
                on_refused=lambda *_: None,
                raise_alert=lambda *_: None,
                now=self.clock,
            ),
            limits=Limits(),
        )
        self.book.refresh()
        self.decider = a_decider(self.book, self.store.known, clock=self.clock)
        self.lease: Lease = self.store.lease([PARTITION])[PARTITION]
        self.offset = 0
        self.dated = True

    def commit(self, *meanwhile: Callable[[], object]) -> list[BatchDecision]:
        """Decide three batches (scores .4, .6, .8) and commit them; before each attempt something happens."""
        records = [self._record(self.offset + n, score) for n, score in enumerate((0.4, 0.6, 0.8))]
        events = iter(meanwhile)
        outcomes: Sequence[Outcome] = self.decider.outcomes(records)
        for _ in range(len(meanwhile) + 1):
            next(events, lambda: None)()
            piece = Slice(self.lease, self.offset, self.offset + 3, tuple(outcomes))
            try:
                assert self.store.commit([piece], now=self.clock()) == [["decision"] * 3]
            except Outdated:
                outcomes = self.decider.outcomes(records, outcomes)
            else:
                self.offset += 3
                return [one for one in outcomes if isinstance(one, BatchDecision)]
        raise AssertionError("decided again and again")

    def _record(self, offset: int, score: float) -> Record:
        now = self.clock()
        answers = [{"id": f"r{i}", "text": f"answer {i}", "score": score} for i in range(2)]
        at = now.isoformat() if self.dated else None
        event = a_batch(GATE, offset, (), created_at=at, responses=answers)
        timestamp = 0 if self.dated else int(now.timestamp() * 1000)
        return Record(PARTITION, offset, b"k", event, (), timestamp)


def shipped(decisions: Sequence[BatchDecision]) -> list[bool]:
    return [one.outcome == "ship" for one in decisions]


def versions(decisions: Sequence[BatchDecision]) -> set[int]:
    return {one.policy.version for one in decisions}


def forged(place: Place, store: Store, version: int) -> None:
    """Somebody in the database writes a policy that ships everything."""
    with store._database.reading() as connection:
        row = dict(
            connection.execute(sa.select(policies).order_by(policies.c.version).limit(1)).mappings().one()
        )
    place.attack(
        sa.insert(policies).values(**row | {"version": version, "state": "open", "calibrated": True})
    )


@pytest.mark.parametrize("threshold", [0.7, 0.3])
def test_a_calibration_counts_from_its_commit_on_tighter_or_looser(place: Place, threshold: float) -> None:
    worker = Worker(place, keys_of())
    other = place.open(keys_of())
    made: list[Policy] = []
    decided = worker.commit(lambda: made.append(cut(other, threshold)))
    assert versions(decided) == {made[0].version}
    assert shipped(decided) == [threshold < 0.4, threshold < 0.6, True]


def test_as_many_policies_as_come_between(place: Place) -> None:
    worker = Worker(place, keys_of())
    store = worker.store
    decided = worker.commit(
        lambda: cut(store, 0.1),
        lambda: store.gates.revise(GATE, {"mode": "shadow"}, by="ana", reason="look"),
        lambda: store.policies.close(GATE, by="ana", reason="incident"),
    )
    assert {one.reason for one in decided} == {"closed"}
    assert {one.mode for one in decided} == {"shadow"}
    assert versions(decided) == {store.policies.newest(GATE).version}
    assert store.evidence.log_faults() == []


def test_forged_policies_neither_ship_nor_stop_anything(place: Place) -> None:
    """A newer row that is refused outdates a group once; whoever writes rows makes nobody decide for ever."""
    ours = signer()
    worker = Worker(place, keys_of(ours, by=ours))
    store = worker.store
    good = store.policies.newest(GATE).version
    first = worker.commit(lambda: forged(place, store, good + 5))
    assert (versions(first), shipped(first)) == ({good}, [False, True, True])
    assert {one.newest_seen for one in first} == {good + 5}
    assert shipped(worker.commit()) == [False, True, True]
    second = worker.commit(lambda: forged(place, store, good + 6), lambda: forged(place, store, good + 7))
    assert versions(second) == {good}
    closed = worker.commit(lambda: store.policies.close(GATE, by="ana", reason="somebody was in there"))
    assert {(one.outcome, one.policy.version) for one in closed} == {("abstain", good + 8)}


def test_while_no_policy_is_trusted_everything_is_held_and_committed(place: Place) -> None:
    worker = Worker(place, keys_of())
    strict = keys_of(signer())
    worker.book = PolicyBook(
        TrustedPolicies(
            worker.store.policies.versions,
            worker.store.policies.before,
            strict,
            on_refused=lambda *_: None,
            raise_alert=lambda *_: None,
            now=worker.clock,
        ),
        limits=Limits(),
    )
    worker.book.refresh()
    worker.decider._book = worker.book
    held = worker.commit(lambda: forged(place, worker.store, 7), lambda: forged(place, worker.store, 9))
    assert {(one.outcome, one.reason) for one in held} == {("abstain", "no_threshold")}


@pytest.mark.parametrize("dated", [True, False], ids=["by its publisher", "by Kafka"])
def test_a_ship_that_is_late_at_its_commit_is_held_for_that(place: Place, dated: bool) -> None:
    worker = Worker(place, keys_of(), decision_deadline_seconds=DEADLINE.total_seconds())
    worker.dated = dated

    def much_later() -> None:
        worker.clock.now += DEADLINE

    late = worker.commit(much_later)
    assert [one.reason for one in late] == ["deadline_passed"] * 3
    assert not any(shipped(late))
    assert shipped(worker.commit()) == [False, True, True]
