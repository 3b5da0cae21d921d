import math
import re
from pathlib import Path

import numpy as np
import pytest

from streamer.risk.states import (
    AuditedDecision,
    AuditedDecisions,
    ExposurePlan,
    ExposureSequence,
    RiskInterval,
    budget_burn,
)
from streamer.risk.states.boundary import GRID, mixture
from tests.unit.monitoring.streams import audited, severities

PLAN = ExposurePlan(delta=0.1, least_probability=0.2)


def begun(**plan):
    return ExposureSequence(plan=ExposurePlan(**{"delta": 0.1, "least_probability": 0.2, **plan}))


def test_the_boundary_is_the_smallest_deviation_that_reaches_the_target():
    found = mixture(5.0, 0.05)
    for spread in (0.0, 1e-9, 0.3, 40.0, 1e6, 1e12):
        for error in (0.5, 0.05, 1e-9):
            deviation = float(found.deviation(spread, error))

            def mixed(at, spread=spread):
                return np.logaddexp.reduce(found.log_weights + found.rates * at - found.costs * spread)

            assert mixed(deviation) >= -math.log(error)
            assert mixed(deviation * (1 - 1e-9)) < -math.log(error)


def test_the_mixture_is_the_one_of_the_page():
    scale, target = 5.0, 0.05
    found = mixture(scale, target)
    rates = [0.95 * 2**-k / scale for k in range(GRID)]
    weights = [3 ** -abs(math.log2(rate / target)) for rate in rates]
    costs = [(-math.log(1 - scale * rate) - scale * rate) / scale**2 for rate in rates]
    np.testing.assert_allclose(found.rates, rates)
    np.testing.assert_allclose(np.exp(found.log_weights), np.array(weights) / sum(weights))
    np.testing.assert_allclose(found.costs, costs, rtol=1e-8)


@pytest.mark.parametrize(("cap", "lower_scale"), [(None, 1.0), (0.4, 2.0)])
def test_scales_below_and_above(cap, lower_scale):
    below, above = ExposurePlan(delta=0.1, least_probability=0.2, judge_cap=cap).boundaries()
    assert below.rates[0] == pytest.approx(0.95 / lower_scale)
    assert above.rates[0] == pytest.approx(0.95 * 0.2)


def test_sums_are_those_of_the_page():
    rng = np.random.default_rng(2)
    decisions = audited(severities(0.2, 50, rng), 0.3, rng, missing=0.3, predicted=rng.random(50))
    for cap in (None, 0.4):
        state = begun(prior_mean=0.07, judge_cap=cap).observe(decisions)
        for evidence, losses in (
            (state.lower_evidence, decisions.least_loss),
            (state.upper_evidence, decisions.most_loss),
        ):
            total = spread = 0.0
            for i in range(50):
                weight = decisions.sampled[i] / decisions.probability[i]
                if cap is None:
                    centre = min(1.0, max(0.0, (0.07 + total) / (i + 1)))
                    step, change = weight * losses[i], weight * losses[i] - centre
                else:
                    guess = min(cap, decisions.predicted[i])
                    change = weight * (losses[i] - guess)
                    step = guess + change
                total, spread = total + step, spread + change**2
            assert evidence.total == pytest.approx(total, rel=1e-12)
            assert evidence.spread == pytest.approx(spread, rel=1e-12)


def test_before_anything_is_read_nothing_is_known():
    for interval in (begun().exposure(), begun().selective()):
        assert (interval.lower, interval.estimate, interval.upper) == (0.0, None, 1.0)


def test_where_nothing_shipped_selective_risk_is_unknown_and_exposure_small():
    rows = [AuditedDecision(0.2, sampled=i % 5 == 0, shipped=0.0) for i in range(2000)]
    state = begun().observe(AuditedDecisions.of_pieces(rows))
    assert state.selective().estimate is None
    assert state.overdue == 0
    assert state.exposure().estimate == 0
    assert state.exposure().upper < 0.02


def test_selective_risk_divides_by_what_shipped():
    rng = np.random.default_rng(3)
    shipped = (rng.random(4000) < 0.5).astype(float)
    decisions = audited(shipped * severities(0.1, 4000, rng), 0.5, rng, shipped=shipped)
    state = begun().observe(decisions)
    exposure, selective = state.exposure(), state.selective()
    ratio = 4000 / shipped.sum()
    assert state.shipped == shipped.sum()
    for name in ("lower", "estimate", "upper"):
        assert getattr(selective, name) == pytest.approx(getattr(exposure, name) * ratio)


def test_an_overdue_label_widens_both_ways_and_is_counted():
    rng = np.random.default_rng(4)
    losses, seed = severities(0.1, 4000, rng), 9
    known = begun().observe(audited(losses, 0.5, np.random.default_rng(seed)))
    partly = begun().observe(audited(losses, 0.5, np.random.default_rng(seed), missing=0.05))
    assert known.overdue == 0
    assert partly.overdue > 50
    assert partly.exposure().labels + partly.overdue == known.exposure().labels == known.drawn
    assert partly.exposure().lower < known.exposure().lower
    assert partly.exposure().upper > known.exposure().upper
    assert partly.exposure().estimate > known.exposure().estimate


def test_the_path_is_what_one_at_a_time_gives():
    rng = np.random.default_rng(6)
    decisions = audited(severities(0.1, 40, rng), 0.5, rng, missing=0.1)
    path = begun().path(decisions)
    for place in range(40):
        head = AuditedDecisions(
            *(getattr(decisions, name)[: place + 1] for name in AuditedDecisions.__dataclass_fields__)
        )
        interval = begun().observe(head).exposure()
        assert (path.lower[place], path.upper[place]) == pytest.approx((interval.lower, interval.upper))


def test_a_probability_below_the_least_is_refused():
    decisions = AuditedDecisions.of_pieces([AuditedDecision(0.3, False), AuditedDecision(0.1999, False)])
    for read in (begun().observe, begun().path):
        with pytest.raises(ValueError, match=r"least probability is 0\.2; position 1 logged 0\.1999"):
            read(decisions)


@pytest.mark.parametrize(
    "change",
    [
        {"delta": 0.0},
        {"delta": math.nan},
        {"least_probability": 0.0},
        {"least_probability": 1.1},
        {"least_probability": None},
        {"planned_labels": 0},
        {"planned_labels": 1.5},
        {"prior_mean": -0.1},
        {"prior_mean": None},
        {"second_moment": 2.0},
        {"judge_cap": 0.0},
        {"judge_cap": math.nan},
    ],
)
def test_a_plan_that_cannot_be_is_refused(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        begun(**change)


def test_numpy_numbers_in_a_plan_go_into_json():
    plan = ExposurePlan(
        delta=np.float64(0.1), least_probability=np.float32(0.5), planned_labels=np.int64(10), prior_mean=1
    )
    state = ExposureSequence(plan=plan)
    assert ExposureSequence.from_json(state.to_json()) == state


PAGE = Path(__file__).parents[3] / "docs" / "monitoring.md"


def test_the_code_of_the_page_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict = {}
    exec(code, names)
    assert names["sequence"].overdue == 1
    assert names["sequence"].exposure().labels == 2
    assert "RiskInterval" in capsys.readouterr().out


def interval(decisions=1000, estimate=0.05, lower=0.02, upper=0.1):
    return RiskInterval(
        decisions=decisions, labels=100, overdue=0, estimate=estimate, lower=lower, upper=upper, delta=0.1
    )


def test_half_the_budget_in_half_the_time():
    burn = budget_burn(interval(), alpha=0.05, elapsed_days=15, period_days=30)
    assert (burn.used_lower, burn.used, burn.used_upper) == pytest.approx((0.2, 0.5, 1.0))
    assert (burn.days_left_soonest, burn.days_left) == pytest.approx((0, 15))


def test_overspent():
    burn = budget_burn(interval(estimate=0.4, upper=0.5), alpha=0.05, elapsed_days=15, period_days=30)
    assert burn.used == pytest.approx(4)
    assert burn.days_left == burn.days_left_soonest == 0


def test_nothing_used_lasts_for_ever():
    burn = budget_burn(interval(estimate=0.0, lower=0.0), alpha=0.05, elapsed_days=1, period_days=30)
    assert burn.used == 0
    assert burn.days_left == math.inf
    assert burn.days_left_soonest < math.inf


def test_before_the_first_decision_nothing_is_used_for_certain():
    nothing = interval(decisions=0, estimate=None, lower=0.0, upper=1.0)
    burn = budget_burn(nothing, alpha=0.05, elapsed_days=1, period_days=30)
    assert burn.used == burn.used_upper == 0
    assert burn.days_left_soonest == math.inf


@pytest.mark.parametrize(
    "change", [{"alpha": 0.0}, {"elapsed_days": 0.0}, {"elapsed_days": 31.0}, {"period_days": math.inf}]
)
def test_what_cannot_be_is_refused(change):
    arguments = {"alpha": 0.05, "elapsed_days": 1.0, "period_days": 30.0, **change}
    with pytest.raises(ValueError, match=next(iter(change))):
        budget_burn(interval(), **arguments)
