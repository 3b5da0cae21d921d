"""Worlds whose risk at every threshold is known in closed form, so that a violated budget is seen without error."""

import math

import numpy as np
from scipy import stats

from streamer import LabelledGroup, Threshold
from streamer.calibration.groups import labelled_groups
from tests.machine import LONG

SHAPES = ("zero-one", "fractions", "together", "ties", "rare")
_LEVELS = np.array([0.25, 0.5, 0.75, 1.0])


def _severity_at(shape: str, scores: np.ndarray) -> np.ndarray:
    return np.full_like(scores, 0.12) if shape == "rare" else 0.7 * (1 - scores)


def draw_groups(shape: str, count: int, rng: np.random.Generator) -> list[LabelledGroup]:
    """Draw independent groups.

    zero-one : one item, severity 0 or 1, worse at low scores.
    fractions : one item, severity between 0 and 1 with the same mean.
    together : five items whose severities hang together.
    ties : one item, four score levels.
    rare : one item, severity 1 for 12 of 100 whatever the score.
    """
    items = 5 if shape == "together" else 1
    scores = rng.random((count, items))
    if shape == "ties":
        scores = np.ceil(4 * scores) / 4
    mean = _severity_at(shape, scores)
    if shape == "fractions":
        severities = rng.beta(2 * mean + 1e-9, 2 * (1 - mean))
    else:
        severities = (rng.random((count, 1)) < mean).astype(float)
    names = tuple(f"r{i}" for i in range(items))
    made = labelled_groups(
        [f"{g:04d}" for g in range(count)], [names] * count, scores.ravel(), severities.ravel()
    )
    return list(made)


def shipped_share(shape: str, threshold: float) -> float:
    """Return P(Q > threshold)."""
    if shape == "ties":
        return float((threshold < _LEVELS).mean())
    return 1 - min(1.0, max(0.0, threshold))


def exposure_risk(shape: str, threshold: float) -> float:
    """Return E[ 1{Q > threshold} m ]."""
    if shape == "ties":
        return float((_severity_at(shape, _LEVELS) * (threshold < _LEVELS)).mean())
    share = shipped_share(shape, threshold)
    return 0.12 * share if shape == "rare" else 0.35 * share**2


def selective_risk(shape: str, threshold: float) -> float:
    """Return E[ m | Q > threshold ], 0 where nothing ships."""
    share = shipped_share(shape, threshold)
    return exposure_risk(shape, threshold) / share if share else 0.0


def single(name: str, score: float, severity: float) -> LabelledGroup:
    """Return a group of one response."""
    return LabelledGroup(name, ("r",), np.array([score]), np.array([severity]))


def uniform_share(threshold: Threshold) -> float:
    """Return P(Q > lambda) for a score that is uniform on [0, 1]."""
    return 1 - min(1.0, max(0.0, threshold.value))


def repeats(full: int, part: int = 4) -> int:
    """How often to simulate: in full with `make faults`, else a part of it, which the controls show to tell right from wrong."""
    return full if LONG else full // part


def most_violations(repeats: int, delta: float) -> int:
    """Return what a method that fails with probability delta at most exceeds with probability 1e-6 at most."""
    return int(stats.binom.isf(1e-6, repeats, delta))


def z_bound() -> float:
    """Return the normal quantile of 1 - 1e-6."""
    return float(stats.norm.isf(1e-6))


def standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def assert_within(risks: np.ndarray, bound: float) -> None:
    """Fail with probability 1e-6 at most where the expected risk is at most `bound` (central limit theorem)."""
    assert risks.mean() <= bound + z_bound() * standard_error(risks)


def assert_over(risks: np.ndarray, bound: float) -> None:
    """Pass with probability 1e-6 at most where the expected risk is at most `bound`: for controls."""
    assert risks.mean() > bound + z_bound() * standard_error(risks)
