"""Every calibrator by name: those in `streamer.calibration.calibrators`."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from streamer.calibration import calibrators
from streamer.calibration.specification import Calibrator, discovered
from streamer.calibration.weighting import WeightingScheme

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamer.calibration.specification import Number, Range


@cache
def every() -> Mapping[str, type[Calibrator]]:
    """Return the classes by name, in the order of lists."""
    return MappingProxyType(discovered(calibrators, Calibrator))


def names() -> tuple[str, ...]:
    """Return the names of all of them."""
    return tuple(every())


def offered() -> tuple[str, ...]:
    """Return the names that a gate may have."""
    return tuple(name for name, one in every().items() if one.offered)


def weighting_schemes() -> tuple[str, ...]:
    """Return the names of those that differ by their weights alone."""
    return tuple(name for name, one in every().items() if issubclass(one, WeightingScheme))


def ranges() -> dict[str, tuple[Range, Number, tuple[str, ...]]]:
    """Return every parameter by name: its range, its default, and which calibrators a gate may name have it."""
    found: dict[str, tuple[Range, Number, tuple[str, ...]]] = {}
    for name in offered():
        one = every()[name]
        defaults = one.defaults()
        for parameter, about in one.ranges().items():
            before = found.get(parameter, (about, defaults[parameter], ()))
            found[parameter] = (before[0], before[1], (*before[2], name))
    return found


def for_arrays() -> tuple[str, ...]:
    """Return the names that `streamer.calibrate` takes."""
    return tuple(name for name, one in every().items() if one.arrays or issubclass(one, WeightingScheme))


def calibrator(name: str, parameters: Mapping[str, Number] = MappingProxyType({})) -> Calibrator:
    """Make a calibrator.

    Parameters
    ----------
    parameters : those that it does not have are passed over.

    Raises
    ------
    ValueError
        When there is none of this name, or a parameter is out of its range.
    """
    kind = every().get(name)
    if kind is None:
        raise ValueError(f"method must be one of {', '.join(names())}, not {name!r}")
    return kind(**{one: parameters[one] for one in kind.ranges() if one in parameters})


def weighting_scheme(name: str, parameters: Mapping[str, Number] = MappingProxyType({})) -> WeightingScheme:
    """Make a weighting scheme. Raises `ValueError` when there is none of this name, or a parameter is out of its range."""
    schemes = weighting_schemes()
    if name not in schemes:
        raise ValueError(f"method must be one of {', '.join(schemes)}, not {name!r}")
    made = calibrator(name, parameters)
    assert isinstance(made, WeightingScheme)
    return made
