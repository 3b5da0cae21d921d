"""Time calibration at a million items, side by side with one `numpy.argsort` of the same scores.

    python benchmarks/calibrate.py [--items N] [--groups G] [--rounds R] [--limit RATIO] [--memory-limit RATIO] [--short] [--json]

Times are taken in turns, so that whatever else the machine does falls on all alike; what counts are ratios of medians.
`threshold` is the search alone, losses given; the weights of the random schemes are made beside it. `grid` is what a
search over 1,000 levels costs, without exact sums. Memory is the peak of what Python and NumPy allocate during the
call (tracemalloc), over the size of the scores, severities and ids passed in. Exit status 1 if calibration by `mean`
or the search takes more than `--limit` times the sort, or any scheme more than `--memory-limit` times its input.
"""

import argparse
import json
import platform
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from streamer import calibrate
from streamer.calibration.groups import canonical_order, index_groups
from streamer.calibration.loss_curve import budget_limit, smallest_admissible
from streamer.calibration.registry import weighting_scheme, weighting_schemes

ALPHA = 0.05
GRID = 1000
SLOW_ROUNDS = 3


class Problem:
    """One seeded calibration set, and everything that is timed on it."""

    def __init__(self, items: int, groups: int) -> None:
        rng = np.random.default_rng(20260101)
        self.scores = rng.random(items)
        self.severities = rng.random(items) * (rng.random(items) > self.scores)
        self.ids = rng.integers(0, groups, items)
        index, sizes = index_groups(self.ids, items)
        self.losses = self.severities / sizes[index]
        self.limit = budget_limit(ALPHA, len(sizes))
        self.grouping = index, sizes

    @property
    def nbytes(self) -> int:
        return self.scores.nbytes + self.severities.nbytes + self.ids.nbytes

    def calibrate(self, scheme: str) -> float:
        return calibrate(self.scores, self.severities, self.ids, alpha=ALPHA, method=scheme).value

    def threshold(self) -> float:
        return smallest_admissible(self.scores, self.losses, self.limit)

    def grid(self) -> float:
        """The first of 1,000 even levels from below that stays inside the budget."""
        level: float
        for level in np.linspace(0, 1, GRID).tolist():
            if self.losses @ (self.scores > level) <= self.limit:
                return level
        raise AssertionError("nothing scores above 1")

    def weights(self, scheme: str) -> object:
        """The order that the weights are dealt out in, and the weights."""
        rng = np.random.default_rng(0)
        _, sizes = canonical_order(self.scores, self.severities, *self.grouping)
        return weighting_scheme(scheme).drawn(sizes, rng)


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


def peak_bytes(task: Callable[[], object]) -> int:
    """Run `task` once and return the most that it had allocated at a time."""
    tracemalloc.start()
    try:
        task()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def median_seconds(tasks: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Run all tasks once to warm up, then in turns."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for task in tasks.values():
        task()
    for _ in range(rounds):
        for name, task in tasks.items():
            times[name].append(seconds(task))
    return {name: statistics.median(values) for name, values in times.items()}


def measure(problem: Problem, rounds: int) -> dict[str, float]:
    """Return median seconds of the sort, the search, each scheme, its weights, and the grid."""
    quick: dict[str, Callable[[], object]] = {
        "argsort": lambda: np.argsort(problem.scores),
        "mean": lambda: problem.calibrate("mean"),
        "threshold": problem.threshold,
    }
    slow: dict[str, Callable[[], object]] = {}
    for scheme in weighting_schemes():
        if scheme != "mean":
            slow[scheme] = partial(problem.calibrate, scheme)
            slow[f"weights {scheme}"] = partial(problem.weights, scheme)
    medians = median_seconds(quick, rounds) | median_seconds(slow, min(rounds, SLOW_ROUNDS))
    return medians | {"grid": seconds(problem.grid)}


def main() -> int:
    parser = argparse.ArgumentParser(description="Time calibration against numpy.argsort.")
    parser.add_argument("--items", type=int, default=10**6)
    parser.add_argument("--groups", type=int, default=10**5)
    parser.add_argument("--rounds", type=int, default=25, help="runs in turns of argsort, mean and search")
    parser.add_argument("--limit", type=float, default=1.5, help="largest ratio of mean or search to argsort")
    parser.add_argument("--memory-limit", type=float, default=5.0, help="largest ratio of memory to input")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--short", action="store_true", help="a smaller form")
    options = parser.parse_args()
    if options.short:
        options.rounds = 5
    problem = Problem(options.items, options.groups)
    medians = measure(problem, options.rounds)
    memory = {
        scheme: peak_bytes(partial(problem.calibrate, scheme)) / problem.nbytes
        for scheme in weighting_schemes()
    }
    ratio = max(medians["mean"], medians["threshold"]) / medians["argsort"]
    within = ratio <= options.limit and max(memory.values()) <= options.memory_limit
    steps = (problem.grid() - problem.threshold()) * (GRID - 1)
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
                    "memory_over_input": memory,
                    "memory_limit": options.memory_limit,
                    "grid_above_exact_in_steps": steps,
                    "within_limit": within,
                }
            )
        )
        return 0 if within else 1
    print(f"NumPy {np.__version__}, sort kind quicksort (the default), {processor()}")
    print(f"{options.items} items in {options.groups} groups, alpha {ALPHA}, medians of runs in turns")
    words = {
        "argsort": "numpy.argsort of the scores",
        "mean": "calibrate mean",
        "threshold": "the search, losses given",
        "grid": f"a grid of {GRID} levels, losses given",
    }
    print(f"{'':34}{'ms':>9}{'/ argsort':>11}{'memory / input':>16}")
    for name, value in medians.items():
        used = f"{memory[name]:16.2f}" if name in memory else ""
        called = words.get(name, f"calibrate {name}" if name in weighting_schemes() else name)
        print(f"{called:34}{1e3 * value:9.1f}{value / medians['argsort']:11.2f}{used}")
    print(f"the grid's level lies {steps:.2f} of its steps above the exact one")
    verdict = "within" if within else "OVER"
    print(f"{verdict} the limits: {options.limit:g} times the sort, {options.memory_limit:g} times the input")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
