"""What labels can support, against calibration itself; predictions against a second, plain computation."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamer import LabelledGroup, calibrate, calibrate_groups
from streamer.calibration.plan import (
    MOST_LABELS,
    Split,
    label_ladder,
    label_splits,
    least_groups,
    least_held_share,
    least_held_share_selective,
    smallest_alpha,
)
from streamer.calibration.prediction import Population, best_ship_rate, bounds_rank, predict
from streamer.calibration.registry import calibrator, every, offered, weighting_scheme
from streamer.calibration.specification import Calibrator

MEAN = weighting_scheme("mean")
ALPHAS = st.one_of(
    st.floats(0.004, 0.99), st.integers(2, 250).map(lambda k: 1 / k), st.sampled_from([0.01, 0.05, 0.1])
)


def harmless(count: int) -> list[LabelledGroup]:
    return [LabelledGroup(str(i), ("r",), np.array([0.5]), np.array([0.0])) for i in range(count)]


@settings(max_examples=60, deadline=None)
@given(alpha=ALPHAS, attempts=st.integers(1, 4))
@example(alpha=0.05, attempts=1)
@example(alpha=0.1, attempts=3)
def test_the_least_groups_are_the_fewest_that_calibration_opens_on(alpha: float, attempts: int) -> None:
    least = least_groups(alpha, attempts)
    enough = calibrate_groups(harmless(least), alpha=alpha / attempts, seed=0)
    assert enough.state == "open"
    if least > 1:
        assert calibrate_groups(harmless(least - 1), alpha=alpha / attempts, seed=0).state == "closed"


@settings(max_examples=60, deadline=None)
@given(groups=st.integers(1, 300), attempts=st.integers(1, 4))
def test_the_smallest_alpha_is_where_calibration_opens(groups: int, attempts: int) -> None:
    smallest = smallest_alpha(groups, attempts)
    if smallest < 1:
        assert least_groups(smallest, attempts) == groups
        assert calibrate_groups(harmless(groups), alpha=smallest / attempts, seed=0).state == "open"
        below = calibrate_groups(harmless(groups), alpha=smallest * 0.999 / attempts, seed=0)
        assert below.state == "closed"


@settings(max_examples=60, deadline=None)
@given(labels=st.integers(1, MOST_LABELS), responses=st.integers(1, 256))
def test_splits_spend_the_labels_and_no_more(labels: int, responses: int) -> None:
    splits = label_splits(labels, responses)
    assert splits[0] == Split(labels, 1)
    assert [s.per_group for s in splits] == sorted({s.per_group for s in splits})
    for split in splits:
        assert labels - split.per_group < split.labels <= labels
        assert split.per_group <= responses
    assert splits[-1].per_group == responses or responses > labels


@settings(max_examples=60, deadline=None)
@given(alpha=st.floats(1e-4, 0.99), labels=st.none() | st.integers(1, MOST_LABELS))
def test_the_ladder_rises_from_the_floor_and_has_the_planned_labels(alpha: float, labels: int | None) -> None:
    least = least_groups(alpha)
    ladder = label_ladder(least, labels)
    assert list(ladder) == sorted(set(ladder))
    assert len(ladder) <= 12
    assert least in ladder
    assert labels is None or labels in ladder
    assert all(least <= n <= MOST_LABELS or n == labels for n in ladder)


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10**6), alpha=st.floats(0.01, 0.6), tied=st.booleans())
def test_no_gate_inside_the_budget_holds_less_than_the_bounds(seed: int, alpha: float, tied: bool) -> None:
    rng = np.random.default_rng(seed)
    scores, severities = rng.random(40), rng.random(40) ** 2
    if tied:
        scores = np.round(scores, 1)
    mean = float(severities.mean())
    population = Population(scores[:, None], severities[:, None], np.ones((40, 1), dtype=bool))
    assert 1 - best_ship_rate(population, alpha) >= least_held_share(mean, alpha) - 1e-9
    ranked = np.sort(severities)  # the best score there could be
    selective = [n for n in range(1, 41) if ranked[:n].mean() <= alpha]
    assert 1 - max(selective, default=0) / 40 >= least_held_share_selective(mean, alpha) - 1e-9


def test_the_limit_of_endless_labels_is_the_largest_share_inside_the_budget() -> None:
    scores = np.array([[0.9, 0.8], [0.8, 0.7], [0.6, 0.5]])
    severities = np.array([[0.0, 0.5], [0.5, 0.0], [1.0, 1.0]])
    population = Population(scores, severities, np.ones((3, 2), dtype=bool))
    assert best_ship_rate(population, 1 / 6) == pytest.approx(4 / 6)
    assert best_ship_rate(population, 0.1) == pytest.approx(
        1 / 6
    )  # the two at .8 ship together or not at all
    assert best_ship_rate(population, 0.99) == 1.0
    blank = Population(scores, severities, np.array([[True, True], [True, True], [False, True]]), held=1)
    assert best_ship_rate(blank, 0.99) == pytest.approx(5 / 8)
    assert blank.mean_severity == pytest.approx(2 / 8)


@pytest.mark.parametrize("method", ["mean", "crc", "bb", "rbwa"])
def test_a_prediction_is_what_plain_calibrations_give(method: str) -> None:
    rng = np.random.default_rng(1)
    scores = rng.random((300, 4))
    severities = (rng.random((300, 4)) < 0.8 * (1 - scores)).astype(float)
    population = Population(scores, severities, np.ones((300, 4), dtype=bool))
    (found,) = predict(
        population,
        [Split(60, 2)],
        alpha=0.1,
        calibrator=weighting_scheme(method),
        repetitions=400,
        rng=np.random.default_rng(2),
    )
    shipped, exposed = [], []
    for _ in range(400):
        prompts = rng.integers(300, size=60)
        items = np.array([rng.permutation(4)[:2] for _ in prompts])
        threshold = calibrate(
            scores[prompts[:, None], items].ravel(),
            severities[prompts[:, None], items].ravel(),
            np.repeat(np.arange(60), 2),
            alpha=0.1,
            method=method,
            seed=rng,
        )
        shipped.append(float((scores > threshold.value).mean()))
        exposed.append(float(((scores > threshold.value) * severities).mean()))
    for mine, theirs in ((found.ship_rate, shipped), (found.exposure_risk, exposed)):
        error = math.sqrt(2 * np.var(theirs, ddof=1) / 400)
        assert abs(mine.mean - np.mean(theirs)) < 4.9 * error  # chance 1e-6 by the central limit theorem
    assert found.selective_risk == pytest.approx(found.exposure_risk.mean / found.ship_rate.mean)


@pytest.mark.parametrize(
    "method",
    [name for name in offered() if every()[name].risk == "exposure" and not every()[name].of_signals],
)
def test_every_calibrator_is_predicted_inside_its_own_budget(method: str) -> None:
    rng = np.random.default_rng(1)
    scores = rng.random((2000, 3))
    severities = (rng.random((2000, 3)) < 0.8 * (1 - scores)).astype(float)
    population = Population(scores, severities, np.ones((2000, 3), dtype=bool))
    one = calibrator(method)
    groups = one.groups_needed(0.15)
    few, enough = predict(
        population,
        [Split(groups - 1, 1), Split(3 * groups + 60, 1)],
        alpha=0.15,
        calibrator=one,
        repetitions=60,
        rng=np.random.default_rng(2),
    )
    assert enough.ship_rate.mean > 0
    assert enough.exposure_risk.mean <= 0.15 + 4.9 * math.sqrt(0.15 / 60 / (3 * groups + 60))
    assert few.ship_rate.high == 0, "fewer than are needed ship nothing"
    assert one.smallest_alpha(groups) <= 0.15 < one.smallest_alpha(groups - 1)


def test_cuts_by_counts_are_those_by_calibrating() -> None:
    one = calibrator("selective-mean", {})
    rng = np.random.default_rng(3)
    counts = rng.multinomial(300, np.full(6, 1 / 6), 20)
    errors = rng.binomial(counts, np.linspace(0, 0.4, 6)).cumsum(axis=1)
    counts = counts.cumsum(axis=1)
    walked = np.arange(6)
    found = one.lowest_cuts(counts, errors, walked, alpha=0.2, rng=np.random.default_rng(4))
    plain = Calibrator.lowest_cuts(one, counts, errors, walked, alpha=0.2, rng=np.random.default_rng(4))
    assert found.tolist() == plain.tolist()
    assert found.max() >= 0


def test_what_is_infeasible_ships_nothing_and_what_is_harmless_everything() -> None:
    ones = np.ones((50, 2), dtype=bool)
    bad = Population(np.full((50, 2), 0.5), np.ones((50, 2)), ones)
    few, many = predict(
        bad,
        [Split(5, 2), Split(40, 1)],
        alpha=0.1,
        calibrator=MEAN,
        repetitions=20,
        rng=np.random.default_rng(0),
    )
    assert few.ship_rate.high == many.ship_rate.high == 0
    assert (few.nothing_ships, few.selective_risk) == (1.0, None)
    fine = Population(np.full((50, 2), 0.5), np.zeros((50, 2)), ones, held=50)
    (open_,) = predict(
        fine,
        [Split(9, 1)],
        alpha=0.1,
        calibrator=MEAN,
        repetitions=20,
        rng=np.random.default_rng(0),
    )
    assert open_.ship_rate.low == pytest.approx(0.5)
    assert open_.ship_rate.high == pytest.approx(0.5)


def test_bounds_leave_no_more_outside_than_they_say() -> None:
    for repetitions in (20, 100, 399, 1000):
        for level in (0.5, 0.9, 0.95):
            r = bounds_rank(repetitions, level)
            inside = (repetitions - 1 - 2 * r) / (repetitions + 1)
            assert inside >= level or r == 0
            assert (repetitions - 3 - 2 * r) / (repetitions + 1) < level


@pytest.mark.parametrize(
    "call",
    [
        lambda p: predict(
            p, [Split(5, 3)], alpha=0.1, calibrator=MEAN, repetitions=20, rng=np.random.default_rng()
        ),
        lambda p: predict(
            p, [Split(0, 1)], alpha=0.1, calibrator=MEAN, repetitions=20, rng=np.random.default_rng()
        ),
        lambda p: predict(
            p, [Split(5, 1)], alpha=0.1, calibrator=MEAN, repetitions=5, rng=np.random.default_rng()
        ),
        lambda p: predict(
            p, [], alpha=0.1, calibrator=MEAN, repetitions=20, level=1, rng=np.random.default_rng()
        ),
        lambda p: predict(p, [], alpha=2, calibrator=MEAN, repetitions=20, rng=np.random.default_rng()),
        lambda p: Population(p.scores, p.severities[:1], p.shippable),
        lambda p: Population(p.scores, p.severities + np.nan, p.shippable),
        lambda p: Population(p.scores[:0], p.severities[:0], p.shippable[:0]),
        lambda _: label_splits(0, 1),
        lambda _: least_groups(0.1, 0),
    ],
)
def test_what_cannot_be_is_refused(call: object) -> None:
    population = Population(np.full((3, 2), 0.5), np.zeros((3, 2)), np.ones((3, 2), dtype=bool))
    with pytest.raises(ValueError, match=r"must|needs|cannot|differ"):
        call(population)  # type: ignore[operator]
