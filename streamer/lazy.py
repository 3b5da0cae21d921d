"""Names of a package (PEP 562), modules and loggers that are imported at their first use: what lies beside them costs less."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of a package.

    Parameters
    ----------
    package : its ``__name__``.
    homes : by module that defines some, public names with spaces between them.
    """
    home = {name: module for module, names in homes.items() for name in names.split()}

    def find(name: str) -> object:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home[name]), name)
        setattr(sys.modules[package], name, value)  # found at once from now on
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home})

    return find, names


class LazyModule:
    """Stands for a module of this name, whose names are then its attributes."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> object:
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value


class LazyLogger:
    """A logger of structlog, which is imported with the first record."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, level: str) -> Any:
        return getattr(import_module("structlog").get_logger(self._name), level)
