"""A gate with batches of one answer each and labels for them, straight in the record: much to calibrate on in no time."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from streamer.gates.batch_key import BatchKey
from streamer.gates.policy import Policy
from streamer.journal import LabelRevision
from streamer.recalibration.one_gate import FinishedRun, recalibrate_by_hand, recalibrate_by_rule
from streamer.store import Store
from tests.integration.store.conftest import SETTINGS, START, World

GATE = "support-bot"


class LabelledGate:
    """Decisions and labels of one gate, made by hand; scores rise evenly and come mixed.

    `store` makes the gate and the policies; by default the world's own, which publishes nothing that anybody could read.
    Batches are decided from `start` on, one a second.
    """

    def __init__(
        self, world: World, *, store: Store | None = None, start: datetime = START, **settings: Any
    ) -> None:
        self.world = world
        self.start = start
        self.store = store or world.store
        usual = {"recalibrate": "auto", "alpha": 0.1, "audit_probability": 1.0, "least_groups": 100}
        chosen = replace(SETTINGS, **(usual | settings))
        self.store.gates.create(GATE, chosen, by="ana", reason="new", now=start)
        self.count = 0
        self.now = start + timedelta(days=1)
        self.lease = world.lease()

    @property
    def policy(self) -> Policy:
        return self.store.policies.newest(GATE)

    def decide(self, count: int) -> list[int]:
        """Decide so many batches under the policy in force; returns their numbers."""
        first, self.count = self.count, self.count + count
        numbers, policy = list(range(first, self.count)), self.policy
        decisions = [
            self.world.decision(
                n, f"b{n}", scores=(self.score(n),), actions=("abstain",), drawn=(0,), policy=policy,
                at=self.start + timedelta(seconds=n),
            )
            for n in numbers
        ]  # fmt: skip
        self.world.commit(self.world.slice(self.lease, *decisions, expected=first))
        return numbers

    def score(self, number: int) -> float:
        return (number * 37 % 100) / 100

    def label(
        self, numbers: Iterable[int], severity: Callable[[float], float], *, by: str = "ana", days: float = 0
    ) -> None:
        self.store.labels.add(
            [
                LabelRevision(
                    key=BatchKey(GATE, f"b{n}", 1), response_id="a", severity=severity(self.score(n)),
                    raw_severity=None, kind="human", labeller=by, labelled_at=self.start + timedelta(days=days),
                )
                for n in numbers
            ]
        )  # fmt: skip

    def clock(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now

    def run(self, meanwhile: Callable[[str], object] = lambda _step: None) -> FinishedRun:
        """Run it by its rule; `meanwhile` is called at each step."""
        self.now += timedelta(hours=1)
        return recalibrate_by_rule(
            self.store.calibration, self.store.policies, self.store.gates.get(GATE),
            clock=self.clock, failpoint=meanwhile,
        )  # fmt: skip

    def open(self) -> Policy:
        """A person puts what the labels allow in force."""
        recalibrate_by_hand(
            self.store.calibration, self.store.policies, self.store.gates.get(GATE),
            clock=self.clock, by="ana", reason="first",
        )  # fmt: skip
        return self.policy

    def runs(self) -> list[Any]:
        return self.world.rows(
            "SELECT id, outcome, why, severities, since_version, requested_by FROM calibration_runs ORDER BY id"
        )


def bad_below(cut: float) -> Callable[[float], float]:
    return lambda score: float(score < cut)
