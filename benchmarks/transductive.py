"""Time the threshold of one batch under a prepared transductive rule.

    python benchmarks/transductive.py [--responses N] [--groups G] [--limit MICROSECONDS] [--json]

The time is the least mean of several rounds, which other work on the machine lengthens least. Exit status 1 if it is
over `--limit`, with severity caps or without.
"""

from __future__ import annotations

import argparse
import json
import sys
import timeit

import numpy as np

from streamer.calibration import LabelledGroup, prepare_transductive

ROUNDS, CALLS, POINTS = 7, 2000, 4096


def measure(responses: int, groups: int) -> dict[str, float]:
    """Return microseconds for each batch, for the whole curve and a compressed one, with caps and without."""
    rng = np.random.default_rng(20261120)
    names = tuple(f"r{i}" for i in range(5))
    labelled = [LabelledGroup(f"g{g}", names, rng.random(5), rng.random(5)) for g in range(groups)]
    exact = prepare_transductive(labelled, alpha=0.1, seed=0)
    scores, caps = rng.random(responses).tolist(), rng.random(responses).tolist()
    times = {}
    for name, rule in (("whole curve", exact), ("compressed", exact.compressed(POINTS))):
        for suffix, known in (("", None), (", caps", caps)):
            rounds = timeit.repeat(
                lambda rule=rule, known=known: rule.threshold_for(scores, known), number=CALLS, repeat=ROUNDS
            )
            times[name + suffix] = 1e6 * min(rounds) / CALLS
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description="Time the transductive threshold of one batch.")
    parser.add_argument("--responses", type=int, default=20)
    parser.add_argument("--groups", type=int, default=20_000)
    parser.add_argument("--limit", type=float, default=20.0, help="largest allowed microseconds for a batch")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    times = measure(options.responses, options.groups)
    within = max(times.values()) <= options.limit
    if options.json:
        print(json.dumps({"microseconds": times, "limit": options.limit, "within_limit": within}))
    else:
        print(
            f"a batch of {options.responses} after {options.groups} calibration groups, at most {options.limit:g} µs"
        )
        for name, microseconds in times.items():
            print(
                f"{name:20} {microseconds:8.1f} µs{'  OVER THE LIMIT' if microseconds > options.limit else ''}"
            )
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
