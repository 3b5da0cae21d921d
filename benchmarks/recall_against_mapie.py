"""Calibrate the same recall problem with this package and with MAPIE's `MultiLabelClassificationController`.

    python benchmarks/recall_against_mapie.py [--samples N] [--classes K] [--json]

Each sample has several true classes; a prediction set keeps the classes whose probability is above a level, and the
share of true classes that it misses must be at most 10 % on average. To this package a sample is a group, its true
classes are the items, 1 - probability is the score and every severity is 1: what "ships" is what the set drops. MAPIE
searches its default grid of 100 levels, so its level is the exact one rounded down to that grid.

MAPIE is no dependency of the package: ``uv pip install --group bench`` installs it; without it only this package runs.
`--samples 100000` is the problem of a million labels.
"""

import argparse
import importlib.metadata
import json
import statistics
import sys
import time

import numpy as np

from streamer import calibrate

ALPHA = 0.1
ROUNDS = 5


def problem(samples: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return true classes, of which each sample has one at least, and probabilities, higher for the true ones."""
    rng = np.random.default_rng(20260101)
    true = rng.random((samples, classes)) < 0.3
    true[np.arange(samples), rng.integers(0, classes, samples)] = True
    return true, rng.beta(1 + 3 * true, 4 - 3 * true)


def exact_level(true: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the largest level whose sets miss at most alpha on average: classes at or above it are kept."""
    sample, chosen = np.nonzero(true)
    dropped = 1 - probabilities[sample, chosen]
    return 1 - calibrate(dropped, np.ones(len(dropped)), sample, alpha=ALPHA).value


def level_of_mapie(true: np.ndarray, probabilities: np.ndarray) -> float:
    from mapie.risk_control import MultiLabelClassificationController

    controller = MultiLabelClassificationController(
        predict_function=lambda _: probabilities, risk="recall", method="crc", target_level=1 - ALPHA
    )
    controller.calibrate(np.zeros((len(true), 1)), true.astype(int))
    return float(controller.best_predict_param[0])


def mapie_version() -> str | None:
    try:
        return importlib.metadata.version("mapie")
    except importlib.metadata.PackageNotFoundError:
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Calibrate recall with this package and with MAPIE.")
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--short", action="store_true", help="a smaller form, for every change")
    options = parser.parse_args()
    if options.short:
        options.samples = 2_000
    true, probabilities = problem(options.samples, options.classes)
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        level = exact_level(true, probabilities)
        times.append(time.perf_counter() - start)
    report: dict[str, float | str | None] = {
        "labels": options.samples * options.classes,
        "seconds": statistics.median(times),
        "level": level,
        "mapie": mapie_version(),
    }
    if report["mapie"] is not None:
        start = time.perf_counter()
        report["mapie_level"] = level_of_mapie(true, probabilities)
        report["mapie_seconds"] = time.perf_counter() - start
        report["factor"] = report["mapie_seconds"] / statistics.median(times)
    if options.json:
        print(json.dumps(report))
    else:
        print(f"{report['labels']} labels in {options.samples} samples, NumPy {np.__version__}")
        print(f"this package, exact        {1e3 * statistics.median(times):10.1f} ms   level {level:.4f}")
        if report["mapie"] is None:
            print("MAPIE is not installed: uv pip install --group bench")
        else:
            print(
                f"MAPIE {report['mapie']}, 100 levels    {1e3 * report['mapie_seconds']:10.1f} ms   "
                f"level {report['mapie_level']:.4f}"
            )
            print(f"factor                     {report['factor']:10.0f}")
    if report["mapie"] is not None and not 0 <= level - report["mapie_level"] <= 0.01:
        print("the levels disagree", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
