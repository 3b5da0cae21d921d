"""An audit probability that follows the past costs no promise: base draws calibrate, and intervals weigh by the p in force.

Decisions come in phases, bad ones and longer good ones. Whether more is drawn follows what was drawn before, late: it is
raised while labels look bad, which is mostly in the good phase that comes after a bad one.
"""

import functools

import numpy as np

from streamer import LabelledGroup, calibrate_groups
from streamer.risk.states import AuditedDecisions, ExposurePlan, ExposureSequence
from tests.validity.known_risk import most_violations

P, FACTOR, LAG, DELTA, ALPHA = 0.1, 4.0, 60, 0.1, 0.1
STREAMS, LENGTH = 250, 1000


@functools.cache
def streams() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Scores, severities, numbers U and probabilities, of shape (streams, length)."""
    rng = np.random.default_rng(20261122)
    scores, u = rng.random((STREAMS, LENGTH)), rng.random((STREAMS, LENGTH))
    bad = (np.arange(LENGTH) % 250) < 60
    severities = (rng.random((STREAMS, LENGTH)) < np.where(bad, 0.9, 0.02) * (1 - scores) * 1.1).astype(float)
    probability = np.full((STREAMS, LENGTH), P)
    heat = np.zeros(STREAMS)
    for i in range(LENGTH):
        probability[:, i] = np.where(heat >= 0.5, FACTOR * P, P)
        if i >= LAG:  # labels are late
            then = i - LAG
            drawn = u[:, then] < probability[:, then]
            heat = 0.98 * heat + drawn * severities[:, then]
    return scores, severities, u, probability


def mean_exposure(chosen: np.ndarray) -> tuple[float, float]:
    """Calibrate on what was chosen of each stream; the exposure of all its decisions, on average, and its error."""
    scores, severities, _, _ = streams()
    exposure = []
    for row in range(STREAMS):
        groups = [
            LabelledGroup(f"{i:04d}", ("r",), scores[row, [i]], severities[row, [i]])
            for i in np.flatnonzero(chosen[row])
        ]
        threshold = calibrate_groups(groups, alpha=ALPHA, seed=1).value
        exposure.append(float(((scores[row] > threshold) * severities[row]).mean()))
    print(f"exposure {np.mean(exposure):.4f} for a budget of {ALPHA}")
    return float(np.mean(exposure)), float(np.std(exposure) / np.sqrt(STREAMS))


def test_the_probability_is_raised_and_mostly_after_what_raised_it() -> None:
    _, _, _, probability = streams()
    bad = (np.arange(LENGTH) % 250) < 60
    raised = probability > P
    assert 0.1 < raised.mean() < 0.9
    assert raised[:, ~bad].mean() > raised[:, bad].mean()


def test_base_draws_keep_the_budget() -> None:
    _, _, u, _ = streams()
    mean, error = mean_exposure(u < P)
    assert mean <= ALPHA + 4 * error


def test_all_draws_without_weights_would_break_it() -> None:
    _, _, u, probability = streams()
    mean, error = mean_exposure(u < probability)
    assert mean > ALPHA + 4 * error


def escapes(logged: np.ndarray) -> int:
    """Count the streams whose running mean ever leaves the interval, with these probabilities on record."""
    _, severities, u, probability = streams()
    outside = 0
    for row in range(STREAMS):
        drawn = u[row] < probability[row]
        decisions = AuditedDecisions.of(
            probability=logged[row], sampled=drawn, labelled=drawn, loss=np.where(drawn, severities[row], 0.0)
        )
        sequence = ExposureSequence(plan=ExposurePlan(delta=DELTA, least_probability=P))
        path = sequence.path(decisions)
        mean = np.cumsum(severities[row]) / np.arange(1, LENGTH + 1)
        outside += bool(((mean < path.lower - 1e-12) | (mean > path.upper + 1e-12)).any())
    print(f"ever outside: {outside} of {STREAMS}")
    return outside


def test_the_interval_holds_with_the_probability_of_each_decision() -> None:
    _, _, _, probability = streams()
    assert escapes(probability) <= most_violations(STREAMS, DELTA)


def test_the_interval_with_the_base_probability_on_record_would_not() -> None:
    _, _, _, probability = streams()
    assert escapes(np.full_like(probability, P)) > most_violations(STREAMS, DELTA)


def width(near: float, far: float) -> tuple[float, float]:
    """Ship the upper half of the scores, extra draws near the cut and far above it: the interval's width, and the labels."""
    widths, labels = [], []
    for seed in range(20):
        rng = np.random.default_rng([20261125, seed])
        scores = rng.random(4 * LENGTH)
        severities = (scores > 0.5) * (rng.random(len(scores)) < 0.3 * (1 - scores))
        logged = np.where(scores <= 0.5, P, np.where(scores <= 0.75, near, far))
        drawn = rng.random(len(scores)) < logged
        decisions = AuditedDecisions.of(
            probability=logged, sampled=drawn, labelled=drawn, loss=np.where(drawn, severities, 0.0)
        )
        plan = ExposurePlan(delta=DELTA, least_probability=P, planned_labels=400)
        path = ExposureSequence(plan=plan).path(decisions)
        widths.append(path.upper[-1] - path.lower[-1])
        labels.append((drawn & (scores > 0.5)).sum())
    print(
        f"near {near}, far {far}: width {np.mean(widths):.4f}, {np.mean(labels):.0f} labels of what shipped"
    )
    return float(np.mean(widths)), float(np.mean(labels))


def test_draws_near_the_cut_narrow_the_interval_no_more_than_as_many_even_ones() -> None:
    base, _ = width(P, P)
    even, asked = width(0.25, 0.25)
    assert even < 0.8 * base
    for near, far in ((0.4, 0.1), (0.35, 0.15), (0.3, 0.2)):
        uneven, labels = width(near, far)
        assert abs(labels / asked - 1) < 0.03
        assert uneven > 0.97 * even
