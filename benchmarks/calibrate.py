"""Time calibration at a million items, side by side with one `numpy.argsort` of the same scores.

    python benchmarks/calibrate.py [--items N] [--groups G] [--rounds R] [--limit RATIO] [--json]

Both are timed in turns, so that whatever else the machine does falls on both alike; what counts is the ratio of the
medians. Exit status 1 if `mean` takes more than `--limit` times the sort.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streamer import calibrate
from streamer.policy import LAWS

if TYPE_CHECKING:
    from collections.abc import Callable

ALPHA = 0.05
RANDOM_LAW_ROUNDS = 3


def processor() -> str:
    """Name the CPU as the kernel does, or as Python does where there is no /proc."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def seconds(task: Callable[[], object]) -> float:
    """Run `task` once and return its wall-clock time."""
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def measure(items: int, groups: int, rounds: int) -> dict[str, float]:
    """Return median seconds of the sort and of each law on one seeded calibration set."""
    rng = np.random.default_rng(20260101)
    scores = rng.random(items)
    severities = rng.random(items) * (rng.random(items) > scores)
    ids = rng.integers(0, groups, items)
    tasks: dict[str, Callable[[], object]] = {"argsort": lambda: np.argsort(scores)}
    for method in LAWS:
        tasks[method] = lambda method=method: calibrate(scores, severities, ids, alpha=ALPHA, method=method)
    for task in tasks.values():
        task()
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name in ("argsort", "mean"):
            times[name].append(seconds(tasks[name]))
    for _ in range(min(rounds, RANDOM_LAW_ROUNDS)):
        for name in LAWS:
            if name != "mean":
                times[name].append(seconds(tasks[name]))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description="Time calibration against numpy.argsort.")
    parser.add_argument("--items", type=int, default=10**6)
    parser.add_argument("--groups", type=int, default=10**5)
    parser.add_argument("--rounds", type=int, default=15, help="interleaved runs of argsort and mean")
    parser.add_argument("--limit", type=float, default=4.0, help="largest allowed ratio of mean to argsort")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    medians = measure(options.items, options.groups, options.rounds)
    ratio = medians["mean"] / medians["argsort"]
    within = ratio <= options.limit
    if options.json:
        print(
            json.dumps(
                {
                    "numpy": np.__version__,
                    "cpu": processor(),
                    "items": options.items,
                    "groups": options.groups,
                    "rounds": options.rounds,
                    "median_seconds": medians,
                    "ratio": ratio,
                    "limit": options.limit,
                    "within_limit": within,
                }
            )
        )
    else:
        print(f"NumPy {np.__version__} on {processor()}")
        print(f"{options.items} items in {options.groups} groups, alpha {ALPHA}, medians of interleaved runs")
        print(f"numpy.argsort    {1e3 * medians['argsort']:8.1f} ms")
        for method in LAWS:
            print(f"calibrate {method:6} {1e3 * medians[method]:8.1f} ms")
        print(
            f"mean / argsort   {ratio:8.2f} (limit {options.limit:g}){'' if within else '  OVER THE LIMIT'}"
        )
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
