"""How long labels take: the one number that says up to when a missing label is only late. Pure."""

import math
from collections.abc import Sequence

QUANTILE = 0.95
LEAST_DELAYS = 20
"""Draws below which their delays say nothing: the largest of fewer is no 95 % quantile."""


def label_lag(delays: Sequence[float | None], *, deadline: float) -> float | None:
    """Return the 95 % quantile of the label delays of draws, in seconds; None for too few of them.

    Parameters
    ----------
    delays : from a decision to its labels, of draws that were chosen without regard to labels; None: the label never came.
        What came later than the deadline counts as the deadline.
    deadline : the age at which a label that has not come counts as never coming, in seconds.
    """
    if len(delays) < LEAST_DELAYS:
        return None
    known = sorted(deadline if one is None else min(max(one, 0.0), deadline) for one in delays)
    return known[math.ceil(QUANTILE * len(known)) - 1]
