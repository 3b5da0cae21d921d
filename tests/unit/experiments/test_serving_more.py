"""What promises on the error rate among shipped answers serve, on a population that is known."""

from __future__ import annotations

import math

import numpy as np

from streamer.calibration import LabelledGroup
from streamer_research.studies.serving_more import METHODS, BestAnswers, Drawn, markdown_table, outcomes


def population() -> BestAnswers:
    scores = np.arange(1, 201) / 200
    wrong = np.zeros(200)
    wrong[:60] = 1.0  # .3 of all, all at the lowest scores
    return BestAnswers(scores, wrong)


def test_the_best_cut_is_the_lowest_within_the_budget() -> None:
    some = population()
    for alpha in (0.05, 0.1, 0.2):
        share, exposed = some.outcome(some.oracle(alpha))
        assert exposed <= alpha * share
        lower, more = some.outcome(some.oracle(alpha) - 0.005)
        assert more > alpha * lower
    assert BestAnswers(np.array([0.5, 0.9]), np.array([1.0, 1.0])).oracle(0.1) == math.inf


def test_every_method_is_compared_on_the_same_draws() -> None:
    some = population()
    drawn = [Drawn.from_prompts(some, 120, seed) for seed in range(12)]
    assert all(isinstance(one.groups[0], LabelledGroup) and len(one.high) == 120 for one in drawn)
    assert all(group.scores[0] > one.floor for one in drawn for group in one.high)
    served = {name: outcomes(some, find, drawn, 0.1)[:, 0].mean() for name, find in METHODS.items()}
    assert served["`selective`, `--label-above 0.5`"] <= 0.52
    assert served["`selective-mean`"] > served["`selective`"]
    table = markdown_table(some, (0.1, 0.2), drawn).splitlines()
    assert len(table) == len(METHODS) + 3
    assert {line.count("|") for line in table} == {2 + 4 * 2}
    again = [Drawn.from_prompts(some, 120, seed) for seed in range(12)]
    assert markdown_table(some, (0.1, 0.2), again).splitlines() == table
