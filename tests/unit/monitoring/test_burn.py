import math

import pytest

from streamer.risk.states import RiskInterval, budget_burn


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
    assert (burn.used, burn.used_upper) == (None, 0)
    assert burn.days_left_soonest == math.inf


@pytest.mark.parametrize(
    "change", [{"alpha": 0.0}, {"elapsed_days": 0.0}, {"elapsed_days": 31.0}, {"period_days": math.inf}]
)
def test_what_cannot_be_is_refused(change):
    arguments = {"alpha": 0.05, "elapsed_days": 1.0, "period_days": 30.0, **change}
    with pytest.raises(ValueError, match=next(iter(change))):
        budget_burn(interval(), **arguments)
