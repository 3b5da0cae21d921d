"""Every calibrator by name: those in `streamer.calibration.calibrators`."""

from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType

from streamer.calibration import calibrators
from streamer.calibration.specification import Calibrator, Number, Range, all_ranges, discovered, made
from streamer.calibration.weighting import WeightingScheme


@cache
def every() -> Mapping[str, type[Calibrator]]:
    """Return the classes by name, in the order of lists."""
    return MappingProxyType(discovered(calibrators, Calibrator))  # type: ignore[type-abstract]


def offered() -> tuple[str, ...]:
    """Return the names that a gate may have."""
    return tuple(name for name, one in every().items() if one.offered)


def promises() -> dict[str, str]:
    """Return what `--promise` may ask for, with the name of the calibrator that it means."""
    return {one.asked_as: name for name, one in every().items() if one.asked_as and one.offered}


@cache
def weighting_schemes() -> tuple[str, ...]:
    """Return the names of those that differ by their weights alone."""
    return tuple(name for name, one in every().items() if issubclass(one, WeightingScheme))


def ranges() -> dict[str, tuple[Range, Number, tuple[str, ...]]]:
    """Return every parameter by name: its range, its default, and which calibrators a gate may name have it."""
    return all_ranges(every()[name] for name in offered())


def for_arrays() -> tuple[str, ...]:
    """Return the names that `streamer.calibrate` takes."""
    return tuple(name for name, one in every().items() if one.arrays or issubclass(one, WeightingScheme))


def calibrator(name: str, parameters: Mapping[str, Number] = MappingProxyType({})) -> Calibrator:
    """Make a calibrator; parameters that it does not have are passed over.

    Raises `ValueError` when there is none of this name, or a parameter is out of its range.
    """
    return made(every(), name, parameters, what="method")


def check_parameters(name: str, given: Iterable[str]) -> None:
    """Raise `ValueError` for a parameter that the calibrator does not have."""
    own = every()[name].ranges()
    if other := [one for one in given if one not in own]:
        raise ValueError(
            f"the method {name} has no parameter {other[0]!r}; it has {', '.join(own) or 'none'}"
        )


def weighting_scheme(name: str, parameters: Mapping[str, Number] = MappingProxyType({})) -> WeightingScheme:
    """Make a weighting scheme. Raises `ValueError` when there is none of this name, or a parameter is out of its range."""
    schemes = weighting_schemes()
    if name not in schemes:
        raise ValueError(f"method must be one of {', '.join(schemes)}, not {name!r}")
    scheme = calibrator(name, parameters)
    assert isinstance(scheme, WeightingScheme)
    return scheme
