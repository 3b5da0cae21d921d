"""Do the bounds of monitoring hold at all times at once? Counted over seeded streams, against the binomial at 1e-6."""

import functools

import numpy as np
import pytest

from streamer.risk.states import AuditedDecisions, ExposurePlan, ExposureSequence
from tests.unit.monitoring.streams import audited, severities
from tests.validity.known_risk import most_violations

DELTA, P, MEAN = 0.1, 0.2, 0.05
SECOND_MOMENT = MEAN * (1 - MEAN) / 3 + MEAN**2  # of Beta(2 mean, 2 (1 - mean))
STREAMS, LENGTH = 250, 1000
BOUND = most_violations(STREAMS, DELTA)


def begun(**plan) -> ExposureSequence:
    return ExposureSequence(plan=ExposurePlan(**{"delta": DELTA, "least_probability": P, **plan}))


def escapes(sequence: ExposureSequence, streams) -> tuple[int, int]:
    """Count the streams whose running mean is ever below the lower and ever above the upper bound."""
    below = above = 0
    for decisions, losses in streams:
        path = sequence.path(decisions)
        mean = np.cumsum(losses) / np.arange(1, losses.size + 1)
        below += bool((mean < path.lower - 1e-12).any())
        above += bool((mean > path.upper + 1e-12).any())
    print(f"ever outside: {below} below, {above} above, of {STREAMS}")
    return below, above


def _resting(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return severities(MEAN, LENGTH, rng), np.full(LENGTH, P)


def _wandering(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    risk = np.clip(MEAN + np.cumsum(rng.normal(0, 0.02, LENGTH)), 0.001, 0.999)
    return severities(risk, LENGTH, rng), rng.uniform(P, 1.0, LENGTH)


def _jumping(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat([0.0, 1.0, 0.0, 1.0], LENGTH // 4), np.full(LENGTH, P)


@functools.cache
def drawn(kind: str) -> list[tuple[AuditedDecisions, np.ndarray]]:
    make = {"resting": _resting, "wandering": _wandering, "jumping": _jumping}[kind]
    rng = np.random.default_rng([20261120, len(kind)])
    streams = []
    for _ in range(STREAMS):
        losses, probability = make(rng)
        noise = np.clip(losses + rng.normal(0, 0.2, LENGTH), 0, 1)
        streams.append((audited(losses, probability, rng, predicted=noise), losses))
    return streams


@functools.cache
def drawn_against_an_adversary(*, upwards: bool) -> list[tuple[AuditedDecisions, np.ndarray]]:
    """Each next loss is chosen by one who knows every draw so far and pushes the estimate further off."""
    rng = np.random.default_rng([20261120, 7, upwards])
    sampled = rng.random((STREAMS, LENGTH)) < P
    losses = np.zeros((STREAMS, LENGTH))
    error = np.zeros(STREAMS)
    for i in range(LENGTH):
        # Losses while the estimate errs to one side, none while it errs to the other: the variance is spent there.
        losses[:, i] = (error >= 0) if upwards else (error <= 0)
        error += (sampled[:, i] / P - 1) * losses[:, i]
    return [
        (
            AuditedDecisions.of(
                probability=P, sampled=draws, labelled=draws, loss=np.where(draws, row, 0.0), predicted=0.3
            ),
            row,
        )
        for draws, row in zip(sampled, losses, strict=True)
    ]


STREAM_KINDS = ("resting", "wandering", "jumping")


@pytest.mark.parametrize("kind", STREAM_KINDS)
@pytest.mark.parametrize("cap", [None, 0.5], ids=["plain", "judged"])
def test_the_running_mean_is_covered_at_all_times(kind, cap):
    below, above = escapes(begun(judge_cap=cap), drawn(kind))
    assert below + above <= BOUND


@pytest.mark.parametrize("upwards", [True, False])
@pytest.mark.parametrize("cap", [None, 0.5], ids=["plain", "judged"])
def test_so_it_is_when_losses_react_to_the_draws(upwards, cap):
    below, above = escapes(begun(judge_cap=cap), drawn_against_an_adversary(upwards=upwards))
    assert below + above <= BOUND


def test_overdue_labels_are_counted_for_the_worst_on_both_sides():
    """Late are the severe ones: the half of all labels that would have mattered never comes."""
    rng = np.random.default_rng(17)
    streams = []
    for _ in range(STREAMS):
        losses = severities(MEAN, LENGTH, rng)
        sampled = rng.random(LENGTH) < P
        labelled = sampled & ((losses < 0.2) | (rng.random(LENGTH) < 0.5))
        decisions = AuditedDecisions.of(
            probability=P, sampled=sampled, labelled=labelled, loss=np.where(labelled, losses, 0.0)
        )
        streams.append((decisions, losses))
    below, above = escapes(begun(), streams)
    assert below + above <= BOUND


def half_widths(labels: int, repeats: int, rng: np.random.Generator) -> tuple[float, float]:
    plan = begun(planned_labels=labels, second_moment=SECOND_MOMENT)
    error = plan.plan.delta / 2
    below, above = plan.plan.boundaries()
    found = []
    for _ in range(repeats):
        length = round(labels / P)
        state = plan.observe(audited(severities(MEAN, length, rng), P, rng))
        found.append(
            (
                float(below.deviation(state.lower_evidence.spread, error)) / length,
                float(above.deviation(state.upper_evidence.spread, error)) / length,
            )
        )
    low, high = np.mean(found, axis=0)
    return float(low), float(high)


@pytest.mark.parametrize(
    ("labels", "low", "high"), [(100, 0.042, 0.065), (1000, 0.011, 0.013), (10_000, 0.0037, 0.0040)]
)
def test_how_wide_the_interval_is(labels, low, high):
    """Mean .05, p = .2, delta = .1; -rP prints the mean half-widths."""
    found = half_widths(labels, 60 if labels < 10_000 else 20, np.random.default_rng(labels))
    print(f"{labels} labels: -{found[0]:.4f} / +{found[1]:.4f}")
    assert found == pytest.approx((low, high), rel=0.15)


def judged_streams(
    correlation: float, length: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw losses of mean .05 and predictions f = E[L | f] that correlate with them as asked."""
    spread = MEAN * (1 - MEAN)
    prior = 3 / correlation**2 - 1
    predicted = rng.beta(MEAN * prior, (1 - MEAN) * prior, length)
    around = spread * (1 - correlation**2 / 3) / (spread * (1 - correlation**2) / 3) - 1
    tiny = 1e-9
    losses = rng.beta(np.maximum(predicted * around, tiny), np.maximum((1 - predicted) * around, tiny))
    return losses, predicted


@pytest.mark.parametrize(
    ("labels", "correlation", "ratio"),
    [
        (1000, 0.5, 0.89),
        (1000, 0.8, 0.70),
        (1000, 0.95, 0.48),
        (10_000, 0.5, 0.84),
        (10_000, 0.8, 0.56),
        (10_000, 0.95, 0.33),
    ],
)
def test_a_judge_makes_the_interval_narrower(labels, correlation, ratio):
    """Width with the judge over width without, on the same draws; -rP prints it."""
    rng = np.random.default_rng([labels, round(100 * correlation)])
    length = round(labels / P)
    widths = []
    for _ in range(20):
        losses, predicted = judged_streams(correlation, length, rng)
        decisions = audited(losses, P, rng, predicted=predicted)
        moment = SECOND_MOMENT - MEAN**2
        plain = begun(planned_labels=labels, second_moment=SECOND_MOMENT)
        judged = begun(planned_labels=labels, second_moment=moment * (1 - correlation**2), judge_cap=0.5)
        intervals = [sequence.observe(decisions).exposure() for sequence in (plain, judged)]
        widths.append([interval.upper - interval.lower for interval in intervals])
    without, with_judge = np.mean(widths, axis=0)
    print(f"{labels} labels, correlation {correlation}: {with_judge / without:.2f}")
    assert with_judge / without == pytest.approx(ratio, abs=0.08)


def test_control_labels_in_the_order_of_arrival():
    """Severe cases are labelled first. Averaged as they arrive, the labels so far are no sample of anything."""
    rng = np.random.default_rng(23)
    in_order, by_arrival, seen = 0, 0, 400
    for _ in range(STREAMS):
        losses = severities(MEAN, 4 * LENGTH, rng)
        sampled = np.flatnonzero(rng.random(losses.size) < P)
        delay = rng.exponential(np.where(losses[sampled] > 0.1, 200.0, 4000.0))
        arrived = sampled[np.argsort(sampled + delay)][:seen]
        state = begun(least_probability=1.0).observe(_labelled(losses[arrived]))
        by_arrival += not state.exposure().lower <= losses.mean() <= state.exposure().upper
        in_turn = begun().observe(audited(losses, P, rng)).exposure()
        in_order += not in_turn.lower <= losses.mean() <= in_turn.upper
    assert in_order <= BOUND < by_arrival


def _labelled(losses: np.ndarray) -> AuditedDecisions:
    every = np.ones(losses.size, dtype=bool)
    return AuditedDecisions.of(probability=1.0, sampled=every, labelled=every, loss=losses)


def test_control_a_scale_of_one_in_the_upper_bound():
    """Until the first draw the estimate is 0 and V next to nothing: with 1 in place of 1/p that looks certain."""
    rng = np.random.default_rng(29)
    p, length, loss = 0.005, 60, 0.5
    sequence = begun(least_probability=p)
    below, _ = sequence.plan.boundaries()
    wrong = right = 0
    for _ in range(STREAMS):
        state = sequence.observe(audited(np.full(length, loss), p, rng))
        total, spread = state.upper_evidence.total, state.upper_evidence.spread
        wrong += (total + float(below.deviation(spread, DELTA / 2))) / length < loss
        right += state.exposure().upper < loss
    assert right <= BOUND < wrong


@pytest.mark.parametrize("cap", [None, 0.5], ids=["plain", "judged"])
def test_control_a_wrong_logged_probability(cap):
    """Logged .4, drawn .2: the estimate is half of the truth."""
    rng = np.random.default_rng(31)
    streams = []
    for _ in range(STREAMS):
        losses = severities(0.2, LENGTH, rng)
        sampled = rng.random(LENGTH) < 0.2
        decisions = AuditedDecisions.of(
            probability=0.4, sampled=sampled, labelled=sampled, loss=np.where(sampled, losses, 0.0)
        )
        streams.append((decisions, losses))
    below, above = escapes(begun(judge_cap=cap), streams)
    assert below + above > BOUND


def test_control_labels_that_a_complaint_brought_about():
    """Drawn at random, and drawn because somebody complained, logged alike: the estimate is far too high."""
    rng = np.random.default_rng(37)
    streams = []
    for _ in range(STREAMS):
        losses = severities(MEAN, LENGTH, rng)
        sampled = (rng.random(LENGTH) < P) | (losses > 0.5)
        decisions = AuditedDecisions.of(
            probability=P, sampled=sampled, labelled=sampled, loss=np.where(sampled, losses, 0.0)
        )
        streams.append((decisions, losses))
    below, _ = escapes(begun(), streams)
    assert below > BOUND
