"""What callers may pass, checked once, with errors that say what was wrong."""

import math
import operator
from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray


def unit_interval(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return `values` as a one-dimensional float64 array, or say what is wrong with them.

    Raises `ValueError` if `values` are not numbers, not one-dimensional, empty, NaN, or outside [0,
    1].
    """
    array = np.asarray(values)
    if array.dtype.kind not in "biufO":
        raise ValueError(f"{name} must be numbers, not {array.dtype}")
    try:
        array = array.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be numbers: {error}") from None
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, not of shape {array.shape}")
    if not array.size:
        raise ValueError(f"{name} is empty: at least one item is needed")
    least, most = (
        float(np.minimum.reduce(array)),
        float(np.maximum.reduce(array)),
    )  # quicker than `min` where it is short
    if math.isnan(least):
        raise ValueError(f"{name} holds NaN, first at position {int(np.isnan(array).argmax())}")
    if least < 0 or most > 1:
        outside = int(((array < 0) | (array > 1)).argmax())
        raise ValueError(f"{name} must lie in [0, 1]; position {outside} holds {float(array[outside])!r}")
    return array


def check_alpha(alpha: float) -> float:
    """Return `alpha` as a float in (0, 1), or raise ValueError."""
    return _between("alpha", alpha, 1.0, "between 0 and 1, both excluded")


def check_delta(delta: float) -> float:
    """Return `delta`, the chance that a bound may fail, as a float in (0, 1), or raise ValueError."""
    return _between("delta", delta, 1.0, "between 0 and 1, both excluded")


def check_positive(name: str, value: float) -> float:
    """Return `value` as a positive finite float, or raise ValueError."""
    return _between(name, value, math.inf, "positive and finite")


def whole_number(name: str, value: SupportsIndex, *, least: int | None = None) -> int:
    """Return `value` as an int of at least `least`, or raise ValueError."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, not {value!r}") from None
    if isinstance(value, bool) or (least is not None and number < least):
        bound = "" if least is None else f" of at least {least}"
        raise ValueError(f"{name} must be a whole number{bound}, not {value!r}")
    return number


def _between(name: str, value: float, upper: float, wanted: str) -> float:
    try:
        number = math.nan if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 < number < upper:
        raise ValueError(f"{name} must be {wanted}, not {value!r}")
    return number
