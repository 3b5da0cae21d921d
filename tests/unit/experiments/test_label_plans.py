"""How many labels draws by score need, on a population that is known."""

from __future__ import annotations

import numpy as np

from streamer_research.studies.label_plans import PLANS, LabelPlan, calibrations, markdown_table, needed
from streamer_research.studies.serving_more import BestAnswers


def population() -> BestAnswers:
    rng = np.random.default_rng(5)
    scores = np.arange(1, 401) / 400
    return BestAnswers(scores, (rng.random(400) < 0.6 * (1 - scores)).astype(float))


def test_a_floor_below_the_cuts_saves_labels_and_changes_no_cut() -> None:
    some = population()
    everything = calibrations(some, LabelPlan("all"), 200, 0.1, 40)
    above = calibrations(some, LabelPlan("above", above=0.9), 200, 0.1, 40)
    assert (everything[:, 0] == 200).all()
    assert 0.85 * 200 < above[:, 0].mean() < 0.95 * 200
    assert (above[:, 1:] == everything[:, 1:]).all()


def test_thinned_labels_are_fewer() -> None:
    found = calibrations(population(), LabelPlan("thinned", top=0.5, thinned=0.5), 400, 0.1, 40)
    assert 0.7 * 400 < found[:, 0].mean() < 0.8 * 400


def test_what_is_needed_is_the_least_that_serves_enough() -> None:
    some = population()
    plan = LabelPlan("all")
    found = needed(some, plan, 0.1, 40)
    assert found is not None
    low = np.quantile(calibrations(some, plan, found.prompts, 0.1, 40)[:, 1], 0.05, method="lower")
    assert low > 0.3
    assert found.labels == found.prompts
    assert needed(BestAnswers(np.full(4, 0.5), np.ones(4)), LabelPlan("none", above=0.5), 0.1, 20) is not None
    table = markdown_table(some, (0.2,), 20).splitlines()
    assert len(table) == len(PLANS) + 2
    assert {line.count("|") for line in table} == {6}
