"""Before anyone labels: what a number of labels can support. Pure.

With G groups no budget below 1/(G + 1) can be met (the floor of conformal risk control), and no score, however good,
ships more than 1 - (mu - alpha) of units whose mean severity is mu: each held unit takes at most 1 off the exposure.
"""

from streamer.calibration.arguments import check_alpha, whole_number
from streamer.calibration.calibrators.mean import Mean
from streamer.calibration.specification import Calibrator

_MEAN = Mean()


def least_groups(alpha: float, attempts: int = 1, calibrator: Calibrator = _MEAN) -> int:
    """Return the fewest groups on which a budget can be met at all, at least 1.

    Parameters
    ----------
    alpha : budget on exposure risk, in (0, 1).
    attempts : R >= 1.
    """
    each = check_alpha(alpha) / whole_number("attempts", attempts, least=1)
    return max(1, calibrator.groups_needed(each))


def least_held_share(mean_severity: float, alpha: float) -> float:
    """Return the share of units that any gate inside the budget holds: max(0, mu - alpha).

    Parameters
    ----------
    mean_severity : mu, the mean severity of what would ship if nothing were held, in [0, 1].
    alpha : budget on exposure risk.
    """
    return max(0.0, mean_severity - alpha)


def least_held_share_selective(mean_severity: float, alpha: float) -> float:
    """Return the share that any gate holds whose *selective* risk is at most alpha: max(0, (mu - alpha)/(1 - alpha))."""
    return max(0.0, (mean_severity - alpha) / (1 - alpha))
