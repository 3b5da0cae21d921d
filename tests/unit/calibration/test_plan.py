"""What labels can support, against calibration itself."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamer import LabelledGroup, calibrate_groups
from streamer.calibration.plan import bounds_rank, least_groups, least_held_share, least_held_share_selective
from streamer.calibration.registry import weighting_scheme

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
    assert calibrate_groups(harmless(least), alpha=alpha / attempts, seed=0).state == "open"
    if least > 1:
        assert calibrate_groups(harmless(least - 1), alpha=alpha / attempts, seed=0).state == "closed"


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10**6), alpha=st.floats(0.01, 0.6))
def test_no_gate_inside_the_budget_holds_less_than_the_bounds(seed: int, alpha: float) -> None:
    severities = np.sort(np.random.default_rng(seed).random(40) ** 2)  # the best score there could be
    mean = float(severities.mean())
    exposure = [n for n in range(1, 41) if severities[:n].sum() / 40 <= alpha]
    assert 1 - max(exposure, default=0) / 40 >= least_held_share(mean, alpha) - 1e-9
    selective = [n for n in range(1, 41) if severities[:n].mean() <= alpha]
    assert 1 - max(selective, default=0) / 40 >= least_held_share_selective(mean, alpha) - 1e-9


def test_bounds_leave_no_more_outside_than_they_say() -> None:
    for repetitions in (20, 100, 399, 1000):
        for level in (0.5, 0.9, 0.95):
            r = bounds_rank(repetitions, level)
            inside = (repetitions - 1 - 2 * r) / (repetitions + 1)
            assert inside >= level or r == 0
            assert (repetitions - 3 - 2 * r) / (repetitions + 1) < level
