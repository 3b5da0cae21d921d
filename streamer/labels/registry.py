"""Every kind of severity by name: whatever stands in `streamer.labels.kinds`."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from streamer.calibration.specification import discovered
from streamer.labels import kinds
from streamer.labels.severity_kind import ProgramKind, SeverityKind


@cache
def every() -> Mapping[str, type[SeverityKind]]:
    """Return the classes by name, in the order of lists."""
    return MappingProxyType(discovered(kinds, SeverityKind))


@cache
def by_programs() -> Mapping[str, type[ProgramKind]]:
    """Return those that programs give: a person's severity would be another measure under the same name."""
    return MappingProxyType({name: kind for name, kind in every().items() if issubclass(kind, ProgramKind)})


def program_kind(name: str) -> type[ProgramKind]:
    """Return one that a program gives. Raises `ValueError` when there is none of this name."""
    kind = by_programs().get(name)
    if kind is None:
        raise ValueError(f"a program labels by one of {', '.join(by_programs())}, not {name!r}")
    return kind
