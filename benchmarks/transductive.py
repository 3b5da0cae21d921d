"""Time the threshold of one batch under a prepared transductive rule.

    python benchmarks/transductive.py [--responses N] [--groups G] [--limit RATIO] [--short] [--json]

Every time is the least mean of several rounds, which other work on the machine lengthens least; rounds of the
measured rules come in turns. A threshold is a search in a prepared curve: exit status 1 if one after G calibration
groups takes more than `--limit` times as long as one after G/100, for any kind of rule. Microseconds depend on the
machine and are told alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import timeit
from typing import TYPE_CHECKING

import numpy as np

from streamer.calibration import LabelledGroup, prepare_transductive

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS, CALLS, POINTS, FEWER = 150, 100, 4096, 100


def rules(responses: int, groups: int) -> dict[str, Callable[[], float]]:
    """Return one call for each kind of rule: the whole curve and a compressed one, with caps and without."""
    rng = np.random.default_rng(20261120)
    names = tuple(f"r{i}" for i in range(5))
    labelled = [LabelledGroup(f"g{g}", names, rng.random(5), rng.random(5)) for g in range(groups)]
    exact = prepare_transductive(labelled, alpha=0.1, seed=0)
    scores, caps = rng.random(responses).tolist(), rng.random(responses).tolist()
    return {
        name + suffix: lambda rule=rule, known=known: rule.threshold_for(scores, known)
        for name, rule in (("whole curve", exact), ("compressed", exact.compressed(POINTS)))
        for suffix, known in (("", None), (", caps", caps))
    }


def microseconds(calls: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Return the least mean time of each call."""
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            least[name] = min(least[name], 1e6 * timeit.timeit(call, number=CALLS) / CALLS)
    return least


def main() -> int:
    parser = argparse.ArgumentParser(description="Time the transductive threshold of one batch.")
    parser.add_argument("--responses", type=int, default=20)
    parser.add_argument("--groups", type=int, default=20_000)
    parser.add_argument(
        "--limit", type=float, default=2.0, help="largest ratio to the time after a hundredth of the groups"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--short", action="store_true", help="a smaller form, for every change")
    options = parser.parse_args()
    if options.short:
        options.groups = 10_000
    fewer = max(1, options.groups // FEWER)
    many, few = rules(options.responses, options.groups), rules(options.responses, fewer)
    times = microseconds(many | {f"{name}, fewer groups": call for name, call in few.items()})
    ratios = {name: times[name] / times[f"{name}, fewer groups"] for name in many}
    within = max(ratios.values()) <= options.limit
    if options.json:
        told = {"microseconds": times, "ratios": ratios, "limit": options.limit, "within_limit": within}
        print(json.dumps(told))
    else:
        print(
            f"a batch of {options.responses} after {options.groups} calibration groups, and ratio to {fewer} groups"
        )
        for name, ratio in ratios.items():
            verdict = f"  OVER {options.limit:g}" if ratio > options.limit else ""
            print(f"{name:20} {times[name]:8.1f} µs  {ratio:5.2f}{verdict}")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
