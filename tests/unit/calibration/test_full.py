"""The rule of method `full` against its definition: one refit for each new prompt."""

from fractions import Fraction

import numpy as np
import pytest

from streamer.calibration.full_fit import (
    RIDGE,
    TIE,
    alike,
    allowed,
    bag_counts,
    chance_above,
    fit_full,
    unfamiliar,
)
from streamer.calibration.signal_order import SIGNALS, UNREAD
from streamer.clouds.compared_methods import full_counts


def refitted(rows, bad, row, *, ridge=RIDGE):
    """The definition: fit all G + 1 with the new one bad, and count. Solved by least squares, not by a normal equation."""
    x = np.column_stack([np.ones(len(rows) + 1), np.vstack([rows, row])])
    targets = np.append(1.0 - 2.0 * np.asarray(bad), -1.0)
    penalty = np.sqrt(np.append(1e-6, np.full(x.shape[1] - 1, ridge)))
    w, *_ = np.linalg.lstsq(
        np.vstack([x, np.diag(penalty)]), np.append(targets, np.zeros(x.shape[1])), rcond=None
    )
    scores = x @ w
    return 1 + int((scores[:-1][np.asarray(bad, bool)] >= scores[-1] - TIE).sum()), scores


def drawn(rng, groups, signals, *, ties=False):
    rows = np.clip(rng.normal(size=(groups, signals)), -4, 4)
    if ties:
        rows = np.round(rows)
    bad = rng.random(groups) < 1 / (1 + np.exp(rows[:, 0] + 1))
    return rows.astype(np.float32), bad


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("groups", "signals"), [(0, 3), (1, 2), (40, 24), (60, 6), (250, 24)])
def test_the_closed_form_is_the_refit(groups, signals, ties):
    rng = np.random.default_rng([groups, signals, ties])
    rows, bad = drawn(rng, groups, signals, ties=ties)
    news, _ = drawn(rng, 40, signals, ties=ties)
    made = fit_full(rows, bad)
    for row in [*news, *rows[:10]]:
        count, scores = refitted(rows, bad, row)
        assert made.count(row) == count
        own, others = made.scores(row)
        assert abs(own - scores[-1]) < 1e-10
        np.testing.assert_allclose(others, scores[:-1][bad], rtol=0, atol=1e-10)


@pytest.mark.parametrize("ties", [False, True])
def test_each_of_a_bag_counts_as_if_the_others_were_the_calibration(ties):
    rng = np.random.default_rng(7 + ties)
    rows, bad = drawn(rng, 61, 8, ties=ties)
    others = [np.arange(61) != i for i in range(61)]
    one_by_one = [fit_full(rows[o], bad[o]).count(rows[i]) for i, o in enumerate(others)]
    assert bag_counts(rows, bad).tolist() == one_by_one
    segments = rng.integers(3, size=61)
    within = [
        fit_full(rows[o], bad[o]).count(rows[i], np.flatnonzero(segments[o][bad[o]] == segments[i]))
        for i, o in enumerate(others)
    ]
    assert bag_counts(rows, bad, segments=segments).tolist() == within


def test_last_bits_change_no_count():
    rng = np.random.default_rng(11)
    rows, bad = drawn(rng, 250, 24, ties=True)
    news, _ = drawn(rng, 200, 24, ties=True)
    made = fit_full(rows, bad)
    noise = rng.uniform(-1e-12, 1e-12, size=rows.shape)
    shaken = fit_full(rows + noise, bad)
    order = rng.permutation(250)
    shuffled = fit_full(rows[order], bad[order])
    for row in news:
        assert made.count(row) == shaken.count(row + 1e-12) == shuffled.count(row)


def test_an_answer_that_equals_a_bad_one_never_gets_the_better_of_it():
    rows = np.zeros((20, 2))
    assert fit_full(rows, np.ones(20)).count(np.zeros(2)) == 21
    assert fit_full(rows, np.zeros(20)).count(np.zeros(2)) == 1


def test_counts_are_compared_in_whole_numbers():
    assert allowed(0.29, 99) == 29  # floor(.29 * 100) is 28 in floats
    assert allowed(0.1, 29, attempts=3) == 1
    assert allowed(0.05, 18) == 0
    assert allowed(1e-9, 5000) == 0
    for alpha in (0.05, 0.07, 0.1, 0.29, 0.57):
        for groups in range(0, 300, 7):
            for attempts in (1, 2, 3, 7):
                k = allowed(alpha, groups, attempts=attempts)
                exact = Fraction(str(alpha)) * (groups + 1)
                assert k * attempts <= exact < (k + 1) * attempts


@pytest.mark.parametrize(("groups", "alpha"), [(60, 0.05), (60, 0.1), (250, 0.05)])
def test_so_many_calibrations_expose_more_than_half_as_much_again(groups, alpha):
    """A score that is uniform among the bad, three in ten: what lies above the k-th bad one of each calibration ships."""
    rng, times = np.random.default_rng([20261128, groups]), 20_000
    scores = np.where(rng.random((times, groups)) < 0.3, rng.random((times, groups)), 0.0)
    k = allowed(alpha, groups)
    exposed = 0.3 * (1 - np.partition(scores, -k, axis=1)[:, -k])
    for level in (alpha, 1.5 * alpha, 2 * alpha):
        chance = chance_above(level, alpha=alpha, groups=groups)
        error = np.sqrt(chance * (1 - chance) / times)
        assert abs((exposed > level).mean() - chance) < 4 * error
    assert chance_above(0.1, alpha=0.01, groups=60) == 0, "nothing ships"


@pytest.mark.parametrize(
    ("rows", "bad", "says"),
    [
        (np.zeros((3, 2)), [True], "one each is needed"),
        (np.zeros(3), [True] * 3, "two axes"),
        ([[np.nan, 0.0]], [True], "finite"),
    ],
)
def test_what_cannot_be_fitted_is_refused(rows, bad, says):
    with pytest.raises(ValueError, match=says):
        fit_full(rows, bad)


def test_a_row_of_another_list_of_signals_is_refused():
    with pytest.raises(ValueError, match="must have 2 signals, not 3"):
        fit_full(np.zeros((3, 2)), [True] * 3).count(np.zeros(3))


def test_a_batch_is_compared_with_labels_of_its_kind():
    _, cut = kinds = np.zeros((2, len(SIGNALS)))
    cut[UNREAD.start] = 1
    for counts, least, held in [
        ((19, 41), 20, [True, False]),
        ((20, 19), 20, [False, True]),
        ((40, 40), 5001, [False, True]),
        ((40, 0), 60, [False, True]),
        ((1, 60), 0, [False, False]),
    ]:
        rows = np.repeat(kinds, counts, axis=0)
        assert [unfamiliar(row, alike(rows), least=least) for row in kinds] == held
        never = full_counts(rows, np.zeros(len(rows), bool), kinds) > len(rows)
        assert least != 20 or never.tolist() == held
