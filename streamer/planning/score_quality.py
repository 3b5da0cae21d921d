"""How well a score separates fine answers from bad ones."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def area_under_curve(scores: Floats, severities: Floats) -> float | None:
    """Return the chance that a fine answer scores above a bad one, ties counting half (the area under the ROC curve).

    An answer of severity m counts as fine with weight 1 - m and as bad with weight m; with severities 0 and 1 this is
    the usual area. Answers of different prompts are compared with one another.

    Parameters
    ----------
    scores, severities : of one shape, severities in [0, 1].

    Returns
    -------
    float or None
        In [0, 1]; 0.5 is no better than chance. None where all answers are fine, or all are bad.
    """
    order = np.argsort(scores, axis=None)
    ranked, bad = scores.ravel()[order], severities.ravel()[order]
    fine = 1 - bad
    if fine.sum() == 0 or bad.sum() == 0:
        return None
    starts = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
    fine, bad = np.add.reduceat(fine, starts), np.add.reduceat(bad, starts)
    below = np.cumsum(bad) - bad / 2
    return float(fine @ below / (fine.sum() * bad.sum()))
