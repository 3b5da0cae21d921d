"""What an evaluation says of its own figures: budgets hold over splits of any file, and its errors are as large as stated."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from streamer.clouds.cloud import Cloud, CloudResponse
from streamer.clouds.compared_methods import served_above
from streamer.clouds.halves import Halves, outcomes, seeded_splits
from streamer.clouds.offline import ScoredCloud
from streamer.research.evaluation.measures import calibrator_rows, mode_rows

ONE_IN_A_MILLION = NormalDist().inv_cdf(1 - 1e-6)
PROMISED = (
    "mean",
    "crc",
    "bb",
    "rbwa",
    "transductive",
    "pooled",
    "smooth",
    "ramp",
    "quantile",
    "rank",
    "age",
)


def clouds(rng: np.random.Generator, count: int, answers: int = 4) -> list[ScoredCloud]:
    """Tied scores that follow severities, and answers to one question that are alike."""
    made = []
    for q in range(count):
        quality = rng.random()
        scores = np.round(4 * np.clip(quality + 0.2 * rng.normal(size=answers), 0, 1)) / 4
        severities = (rng.random(answers) > 0.25 + 0.7 * quality).astype(float)
        responses = tuple(
            CloudResponse(f"r{i:02d}", "x", float(severity)) for i, severity in enumerate(severities)
        )
        made.append(ScoredCloud(Cloud(f"q{q}", "?", (), responses), tuple(scores.tolist())))
    return made


@pytest.mark.parametrize("unit", ["best", "response"])
def test_over_splits_of_one_file_no_promise_on_average_is_broken(unit):
    """Given the file its halves are exchangeable: expected exposure over splits is at most alpha, whatever the file."""
    alpha, splits = 0.2, 200
    scored = clouds(np.random.default_rng(20261121), 61)
    halves = Halves.of(scored, unit, range(splits))
    rows = calibrator_rows(halves, unit, alphas=[alpha])
    rows += mode_rows({"gram": halves, "judge": halves}, unit, alphas=[alpha])
    tried = 0
    for row in rows:
        if row.method not in PROMISED:
            continue
        tried += 1
        assert row.exposure.mean <= alpha + ONE_IN_A_MILLION * row.exposure.se + 1e-9, row.method
    assert tried == len(PROMISED) + 2 - (unit == "best")
    (naive,) = [row for row in rows if row.mode == "G-Eval-Naive"]
    assert naive.method == "fixed"


def test_a_gate_that_ships_ties_of_its_threshold_is_caught():
    """The bound above has teeth: `score >= lambda`, with the same thresholds and tied scores, passes it."""
    alpha, splits = 0.1, 400
    scored = clouds(np.random.default_rng(20261121), 61)
    halves = Halves.of(scored, "best", range(splits))

    def with_ties(labels, alpha, traffic):
        return served_above(float(np.nextafter(labels.level("mean", alpha), -math.inf)), traffic)

    found = outcomes(with_ties, halves, alpha).exposure
    assert found.mean() > alpha + ONE_IN_A_MILLION * found.std(ddof=1) / math.sqrt(splits)


def test_the_error_for_other_questions_is_not_too_small():
    """`Spread.error` against the truth: how the mean over splits varies between files of the same kind."""
    files, splits, alpha = 60, 20, 0.2
    means, errors, naive = [], [], []
    for seed in range(files):
        scored = clouds(np.random.default_rng([7, seed]), 60)
        (row,) = [
            row
            for row in mode_rows({"gram": Halves.of(scored, "best", range(splits))}, "best", alphas=[alpha])
            if row.mode == "Gram-CRC"
        ]
        means.append(row.ship_rate.mean)
        errors.append(row.ship_rate.error)
        naive.append(row.ship_rate.se)
    truth = float(np.std(means, ddof=1))
    # the standard deviation of 60 normal draws is within 1 +- z/sqrt(2 * 59) of the truth
    room = 1 + ONE_IN_A_MILLION / math.sqrt(2 * (files - 1))
    assert float(np.mean(errors)) * room >= truth
    assert float(np.mean(naive)) * room < truth, "sd / sqrt(splits) alone would say far too little"


def test_splits_are_by_question():
    scored = clouds(np.random.default_rng(0), 11)
    for split in seeded_splits([item.cloud for item in scored], range(30)):
        assert sorted([*split.first, *split.second.tolist()]) == list(range(11))
        assert len(split.first) == 5
