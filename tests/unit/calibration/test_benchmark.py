"""The benchmarks report what they measured, and what makes calibration fast is counted instead of timed."""

import json
import math
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamer import calibrate
from streamer.calibration import TransductiveRule, loss_curve
from tests import programs

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def run(script: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, str(BENCHMARKS / script), *arguments, "--json"]
    done = programs.run(*command, status=None)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize(
    ("limits", "status"),
    [(("--limit", "1e6"), 0), (("--limit", "0"), 1), (("--limit", "1e6", "--memory-limit", "0.1"), 1)],
)
def test_the_exit_status_follows_the_limits(limits, status):
    returned, report = run("calibrate.py", "--items", "20000", "--groups", "2000", "--rounds", "1", *limits)
    assert returned == status
    assert report["within_limit"] == (status == 0)
    times = report["median_seconds"]
    assert report["ratio"] == max(times["mean"], times["threshold"]) / times["argsort"]
    assert {"argsort", "threshold", "grid", "mean", "crc", "bb", "rbwa", "weights rbwa"} <= set(times)
    assert 0 <= report["grid_above_exact_in_steps"] <= 1
    assert report["numpy"]
    assert report["cpu"]


COUNT, GROUPS = 400_000, 40_000


@pytest.fixture(scope="module")
def many() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(12)
    scores = rng.random(COUNT)
    return scores, rng.random(COUNT) * (rng.random(COUNT) > scores), rng.integers(0, GROUPS, COUNT)


def test_calibration_sorts_a_thousandth_of_its_items(many, monkeypatch):
    """What keeps it below the time of one sort: scores that spread are never sorted as a whole."""
    scores, severities, ids = many
    found = []

    class Counting:
        """NumPy, with a note of how much is sorted."""

        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

        @staticmethod
        def argsort(values: np.ndarray) -> np.ndarray:
            found.append(len(values))
            return np.argsort(values)

    monkeypatch.setattr(loss_curve, "np", Counting())
    assert calibrate(scores, severities, ids, alpha=0.05).state == "cut"
    assert len(found) == 1
    assert sum(found) <= COUNT / 1000


@pytest.mark.parametrize("method", ["mean", "crc", "bb", "rbwa"])
def test_memory_stays_below_five_times_the_input(many, method):
    tracemalloc.start()
    calibrate(*many, alpha=0.05, method=method)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 5 * sum(array.nbytes for array in many)


def test_a_batch_reads_a_few_levels_of_a_long_curve():
    """The threshold of a batch costs a search for each of its scores, not a walk along the curve."""
    read = []

    class Noting(tuple[float, ...]):
        def __getitem__(self, position: Any) -> Any:
            read.append(position)
            return super().__getitem__(position)

    count, groups = 100_000, 1000
    limit = 0.1 * (groups + 1)
    rule = TransductiveRule(
        alpha=0.1, method="mean", groups=groups, labelled=None,
        levels=tuple(np.linspace(0, 1, count).tolist()),
        totals=tuple(np.linspace(limit, limit - 1, count).tolist()), guarantee="",
    )  # fmt: skip
    for name in ("levels", "_falling"):
        object.__setattr__(rule, name, Noting(getattr(rule, name)))
    scores = np.random.default_rng(0).random(20).tolist()
    assert 0 < rule.threshold_for(scores) < 1
    assert math.log2(count) <= len(read) <= len(scores) * (math.ceil(math.log2(count)) + 4)
