"""The figures of decided batches, against figures worked out by hand and by definition."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from streamer.clouds.measurement import DecidedBatch, clustered_standard_error, measure, units_of
from streamer.clouds.sentence import sentence
from streamer.gates.declared import Unit
from streamer.gates.gate import gate_batch
from streamer.report.charts import tradeoff
from streamer.research.evaluation.words import UNITS


def batch(
    name: str,
    scores: tuple[float | None, ...],
    shipped: tuple[bool, ...],
    severities: tuple[float | None, ...],
    texts: tuple[str, ...] | None = None,
) -> DecidedBatch:
    return DecidedBatch(
        batch_id=name, prompt="?", texts=texts or tuple(f"answer {i}" for i in range(len(scores))),
        scores=scores, shipped=shipped, severities=severities,
    )  # fmt: skip


def test_unit_best_counts_prompts_and_looks_at_the_best_response() -> None:
    report = measure(
        [
            batch("a", (0.2, 0.9), (False, True), (1.0, 0.0)),
            batch("b", (0.8, 0.8), (True, False), (1.0, 0.0)),
            batch("c", (0.3, 0.4), (False, False), (0.0, 0.5)),
            batch("d", (None, None), (False, False), (1.0, 1.0), ("", " ")),
        ],
        "best",
    )
    assert (report.batches, report.responses, report.units, report.shipped) == (4, 8, 4, 2)
    assert report.ship_rate == 0.5
    assert report.exposure_risk == 0.25
    assert report.exposure_risk_se == pytest.approx(np.std([0, 1, 0, 0], ddof=1) / 2)
    assert report.selective_risk == 0.5
    assert report.mean_severity == pytest.approx((0 + 1 + 0.5 + 1) / 4)
    assert report.severity_reduction == pytest.approx(1 - 0.5 / 0.75)


@pytest.mark.parametrize(("turned", "upside_down"), [(False, False), (True, True)])
def test_a_closed_gate_whose_higher_scores_are_worse_says_so_first(turned: bool, upside_down: bool) -> None:
    rng = np.random.default_rng(5)
    scores = rng.random(200)
    wrong = rng.random(200) < (scores if turned else 1 - scores)
    batches = [
        batch(f"{n}", (float(score),), (False,), (float(bad),))
        for n, (score, bad) in enumerate(zip(scores, wrong, strict=True))
    ]
    report = measure(batches, "best")
    assert report.upside_down is upside_down
    assert sentence(report, 0.05).startswith("the score works the wrong way for prompts: ") is upside_down


def test_scores_that_say_nothing_are_upside_down_no_more_often_than_chance_has_it() -> None:
    rng = np.random.default_rng(6)
    found = 0
    for _ in range(400):
        severities = rng.random((40, 5)) < rng.random((40, 1))  # answers of a prompt go wrong together
        found += measure(
            [
                batch(f"{n}", tuple(rng.random(5)), (False,) * 5, tuple(map(float, row)))
                for n, row in enumerate(severities)
            ],
            "response",
        ).upside_down
    assert found <= stats.binom.isf(1e-4, 400, 0.035)  # beyond two standard errors on one side, of a t of 39


def test_equal_scores_are_not_upside_down() -> None:
    assert not measure([batch("a", (0.5, 0.5), (False, False), (1.0, 0.0))], "response").upside_down


def test_unit_response_counts_responses_and_clusters_the_error_by_batch() -> None:
    batches = [
        batch("a", (0.9, 0.8, 0.1), (True, True, False), (1.0, 1.0, 0.0)),
        batch("b", (0.9, 0.1), (True, False), (0.0, 1.0)),
    ]
    report = measure(batches, "response")
    assert (report.units, report.shipped) == (5, 3)
    assert report.exposure_risk == pytest.approx(2 / 5)
    # Totals 2 of 3 and 0 of 2 against 0.4 each: deviations .8 and -.8.
    assert report.exposure_risk_se == pytest.approx(math.sqrt(2 / 1 * (0.8**2 + 0.8**2)) / 5)
    assert report.severity_reduction == pytest.approx(1 - (2 / 3) / (1 / 2))


def test_unit_batch_ships_all_or_none_at_the_mean() -> None:
    report = measure(
        [
            batch("a", (0.9, 0.7), (True, True), (1.0, 0.0)),
            batch("b", (0.2, 0.4), (False, False), (1.0, 1.0)),
        ],
        "batch",
    )
    assert (report.units, report.shipped, report.exposure_risk) == (2, 1, 0.25)
    assert units_of([batch("a", (0.9, 0.7), (True, True), (1.0, 0.0))], "batch").scores.tolist() == [0.8]


def test_what_cannot_be_computed_is_none() -> None:
    empty = measure([], "best")
    assert (empty.ship_rate, empty.exposure_risk, empty.exposure_risk_se, empty.selective_risk) == (None,) * 4
    one = measure([batch("a", (0.9, 0.1), (True, False), (0.0, 0.0))], "best")
    found = (one.ship_rate, one.exposure_risk, one.exposure_risk_se, one.severity_reduction)
    assert found == (1.0, 0.0, None, None)
    harmless = measure([batch(n, (0.9, 0.1), (n == "a", False), (0.0, 0.0)) for n in "ab"], "best")
    assert harmless.severity_reduction is None


def test_an_unknown_severity_counts_as_the_worst_and_is_told() -> None:
    report = measure([batch("a", (0.9, 0.1), (True, False), (None, 0.0))], "best")
    assert (report.exposure_risk, report.unlabelled) == (1.0, 1)


def test_a_blank_answer_is_never_the_best() -> None:
    assert batch("a", (0.0, 0.0), (False, False), (1.0, 0.0), (" ", "right")).best == 1
    assert not units_of([batch("a", (0.5, 0.4), (False,) * 2, (1.0, 0.0), ("", "right"))], "batch").shippable[
        0
    ]


@pytest.mark.parametrize(
    ("scores", "shipped"), [((0.1,), (True, False)), ((0.1, None), (False, False)), ((), ())]
)
def test_a_batch_that_contradicts_itself_is_refused(
    scores: tuple[float | None, ...], shipped: tuple[bool, ...]
) -> None:
    with pytest.raises(ValueError, match="batch 'a'"):
        batch("a", scores, shipped, (0.0,) * len(shipped), ("x",) * len(scores))


def test_the_clustered_error_is_the_spread_of_the_mean_over_repetitions() -> None:
    rng = np.random.default_rng(0)
    clusters, size, repetitions = 40, 8, 1500
    means, errors = [], []
    for _ in range(repetitions):
        centres = rng.random(clusters)
        values = (rng.random((clusters, size)) < centres[:, None]).astype(float).ravel()
        error = clustered_standard_error(values, np.repeat(np.arange(clusters), size))
        assert error is not None
        means.append(values.mean())
        errors.append(error)
    spread = np.std(means, ddof=1)
    # The sample spread has a relative error of 1 / sqrt(2 repetitions); 4.9 of them: chance 1e-6.
    assert abs(np.sqrt(np.mean(np.square(errors))) / spread - 1) < 4.9 / math.sqrt(2 * repetitions) + 0.01


scored_batches = st.lists(
    st.lists(
        st.tuples(st.integers(0, 10).map(lambda i: i / 10), st.sampled_from([0.0, 0.5, 1.0]), st.booleans()),
        min_size=2,
        max_size=4,
    ),
    min_size=1,
    max_size=8,
)


@given(rows=scored_batches, unit=st.sampled_from(UNITS), threshold=st.integers(0, 10).map(lambda i: i / 10))
def test_figures_over_thresholds_are_those_of_gating_at_each(
    rows: list[list[tuple[float, float, bool]]], unit: Unit, threshold: float
) -> None:
    batches = []
    for i, row in enumerate(rows):
        scores = tuple(0.0 if blank else score for score, _, blank in row)
        blanks = [blank for _, _, blank in row]
        gated = gate_batch(scores, unit=unit, state="cut", threshold=threshold, blank=blanks)
        texts = tuple("" if blank else "words" for blank in blanks)
        batches.append(batch(str(i), scores, gated.shipped, tuple(m for _, m, _ in row), texts))
    units, report = units_of(batches, unit), measure(batches, unit)
    starts, ship, exposure, selective = tradeoff(units)
    at = np.searchsorted(starts, threshold, side="right") - 1
    assert ship[at] == pytest.approx(report.ship_rate)
    assert exposure[at] == pytest.approx(report.exposure_risk)
    if report.selective_risk is None:
        assert math.isnan(selective[at])
    else:
        assert selective[at] == pytest.approx(report.selective_risk)


def test_the_first_word_on_a_gate_that_ships_no_worse_than_chance_is_no_alarm() -> None:
    """On scores that say nothing what ships is now a little worse than all, now a little better."""
    rng = np.random.default_rng(8)
    alarms = 0
    for _ in range(200):
        scores, wrong = rng.random(100), rng.random(100) < 0.5
        report = measure(
            [
                batch(f"{n}", (float(score),), (bool(score > 0.8),), (float(bad),))
                for n, (score, bad) in enumerate(zip(scores, wrong, strict=True))
            ],
            "best",
        )
        alarms += sentence(report, 0.1).startswith("the score works the wrong way")
    assert alarms <= stats.binom.isf(1e-4, 200, 0.035)


def test_a_gate_that_ships_the_worst_says_so_though_half_of_the_scores_are_in_order() -> None:
    severities = [1.0] * 20 + [0.0] * 100 + [0.6] * 80
    batches = [batch(f"{n}", (1 - n / 200,), (n < 20,), (severity,)) for n, severity in enumerate(severities)]
    assert sentence(measure(batches, "best"), 0.1).startswith(
        "the score works the wrong way for prompts (34 % of all"
    )
