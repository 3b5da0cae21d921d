"""Before anyone labels: what a number of labels can support, and how it may be spent. Pure.

With G groups no budget below 1/(G + 1) can be met (the floor of conformal risk control), and no score, however good,
ships more than 1 - (mu - alpha) of units whose mean severity is mu: each held unit takes at most 1 off the exposure.
"""

from dataclasses import dataclass

from streamer.calibration.arguments import check_alpha, whole_number
from streamer.calibration.calibrators.mean import Mean
from streamer.calibration.specification import Calibrator

MOST_LABELS = 100_000
"""Past this many labelled groups a threshold hardly moves: planning for more says nothing new."""

_MEAN = Mean()
_PER_GROUP = (1, 2, 3, 5, 10, 20, 50, 100, 200)
_STEPS = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class Split:
    """A way to spend labels: `groups` prompts with `per_group` of their responses drawn for labelling in each."""

    groups: int
    per_group: int

    @property
    def labels(self) -> int:
        """Labels that it costs."""
        return self.groups * self.per_group


def smallest_alpha(groups: int, attempts: int = 1, calibrator: Calibrator = _MEAN) -> float:
    """Return the smallest budget that G groups can support, by `mean` R/(G + 1); where it is 1 or more, none does.

    Parameters
    ----------
    groups : G >= 0.
    attempts : R >= 1; each attempt of a gate that regenerates is calibrated at alpha / R.
    """
    groups = whole_number("groups", groups, least=0)
    return whole_number("attempts", attempts, least=1) * calibrator.smallest_alpha(groups)


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


def label_splits(labels: int, responses: int) -> tuple[Split, ...]:
    """Return the ways to spend `labels`, from one response of many prompts to all responses of few.

    Parameters
    ----------
    labels : what can be afforded, >= 1. A split may cost a few less, where it does not divide.
    responses : n >= 1 to a prompt that may be drawn; 1 where only one can ship (the unit `best`).

    Returns
    -------
    tuple of Split
        At least one; most groups first.
    """
    labels, responses = whole_number("labels", labels, least=1), whole_number("responses", responses, least=1)
    steps = sorted({step for step in _PER_GROUP if step < responses} | {responses})
    return tuple(Split(labels // step, step) for step in steps if step <= labels)


def label_ladder(floor: int, labels: int | None = None) -> tuple[int, ...]:
    """Return rising numbers of labels to compare: the floor, and round numbers above it.

    Parameters
    ----------
    floor : see `least_groups`.
    labels : the number that is planned, which is among them: round numbers from a tenth of it to ten times of it.
        None: from the floor to about a hundred times the floor.

    Returns
    -------
    tuple of int
        None below the floor or above `MOST_LABELS`, unless `labels` is.
    """
    first, last = (floor, 100 * floor) if labels is None else (max(floor, labels // 10), 10 * labels)
    round_numbers = (step * 10**power for power in range(len(str(MOST_LABELS))) for step in _STEPS)
    chosen = {n for n in round_numbers if first <= n <= min(last, MOST_LABELS) and 2 * n >= 3 * floor} | {
        floor
    }
    return tuple(sorted(chosen if labels is None else chosen | {labels}))
