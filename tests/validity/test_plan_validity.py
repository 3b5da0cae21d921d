"""A plan's figures against calibrations that really happen, on prompts that the plan never saw."""

import numpy as np
import pytest
from scipy import stats

from streamer import calibrate
from streamer.calibration.prediction import bounds_rank
from streamer.gates.declared import Unit
from streamer.planning.guess import Guess, make_world
from streamer.planning.plan import Budget, Simulation, make_plan
from streamer.planning.prompts import SampledBatches, guessed_prompts

FRESH = 400
REPETITIONS = 400


def fresh_outcomes(guess: Guess, unit: Unit, alpha: float, labels: int) -> np.ndarray:
    """Calibrate on new prompts, `FRESH` times, and measure ship rate and exposure on many others: shape (FRESH, 2)."""
    rng = np.random.default_rng(99)
    world = make_world(guess, most_responses=guess.responses, prompts=60_000, rng=rng)
    scores, severities = world.sample(guess.responses)
    made = SampledBatches(scores, severities, np.zeros(scores.shape, dtype=bool)).population(unit)
    test, pool = slice(0, 20_000), np.arange(20_000, 60_000)
    found = []
    for _ in range(FRESH):
        prompts = rng.choice(pool, labels, replace=False)
        items = rng.integers(made.items, size=labels)
        value = calibrate(
            made.scores[prompts, items], made.severities[prompts, items], np.arange(labels), alpha=alpha
        ).value
        ships = made.scores[test] > value
        found.append((ships.mean(), (ships * made.severities[test]).mean()))
    return np.array(found)


@pytest.mark.parametrize(("unit", "alpha", "labels"), [("best", 0.1, 100), ("response", 0.05, 300)])
def test_bounds_hold_as_many_fresh_calibrations_as_they_say(unit: Unit, alpha: float, labels: int) -> None:
    guess = Guess(severity=0.35, auc=0.85, correlation=0.4, responses=5)
    plan = make_plan(
        guessed_prompts(guess, seed=1),
        Budget(alpha, labels),
        unit=unit,
        simulation=Simulation(repetitions=REPETITIONS, seed=1),
    )
    assert plan.best.split.per_group == 1
    fresh = fresh_outcomes(guess, unit, alpha, labels)
    for bounds, values in ((plan.best.ship_rate, fresh[:, 0]), (plan.best.exposure_risk, fresh[:, 1])):
        # Between order statistics r + 1 and N - r of N calibrations a further one falls with a chance that is itself
        # Beta distributed: the number of fresh ones inside is beta-binomial, without any tolerance of ours.
        inside = REPETITIONS - 1 - 2 * bounds_rank(REPETITIONS, plan.level)
        law = stats.betabinom(FRESH, inside, REPETITIONS + 1 - inside)
        count = int(((values >= bounds.low) & (values <= bounds.high)).sum())
        assert law.ppf(1e-6) <= count <= law.isf(1e-6)
        spread = np.hypot(values.std(ddof=1) / np.sqrt(FRESH), values.std(ddof=1) / np.sqrt(REPETITIONS))
        assert abs(bounds.mean - values.mean()) < stats.norm.isf(5e-7) * spread


def test_more_groups_with_one_label_each_ship_most_and_every_split_keeps_the_budget() -> None:
    # The known order at 600 labels and alpha .05, in another population: .60, .59, .57, .53.
    plan = make_plan(
        guessed_prompts(Guess(), seed=2),
        Budget(0.05, 600),
        unit="response",
        simulation=Simulation(repetitions=600, seed=2),
    )
    rates = {one.split.per_group: one.ship_rate.mean for one in plan.splits}
    assert [one.split.groups for one in plan.splits] == [600, 300, 200, 120, 60]
    assert rates[1] > rates[2] > rates[5] > rates[10]
    assert plan.best.split.per_group == 1
    widths = [one.ship_rate.high - one.ship_rate.low for one in plan.splits]
    assert widths == sorted(widths)
    for one in (*plan.splits, *plan.ladder, *(size.prediction for size in plan.sizes)):
        # A loss in [0, 1] of mean at most alpha has a variance of alpha (1 - alpha) at most.
        error = np.sqrt(plan.alpha * (1 - plan.alpha) / plan.repetitions)
        assert one.exposure_risk.mean <= plan.alpha + stats.norm.isf(1e-6) * error


def test_more_responses_serve_more_prompts_and_no_gate_beats_the_bounds() -> None:
    plan = make_plan(
        guessed_prompts(Guess(), seed=3), Budget(0.1, 500), simulation=Simulation(repetitions=200, seed=3)
    )
    assert [one.responses for one in plan.sizes] == [2, 3, 5, 10, 20]
    limits = [one.oracle_ship_rate for one in plan.sizes]
    assert limits == sorted(limits)
    assert [one.mean_severity for one in plan.sizes] == sorted(
        (one.mean_severity for one in plan.sizes), reverse=True
    )
    assert plan.oracle_ship_rate <= 1 - plan.least_held
