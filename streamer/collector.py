"""How often Python looks for garbage: seldom while a program starts, because what it imports stays, or goes through a record."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_USUAL = gc.get_threshold()[0]
_SELDOM = 50_000


def look_seldom() -> None:
    """Look for garbage after so many new objects: looking as often as usual was a fifth of what a start takes."""
    gc.set_threshold(_SELDOM)


def look_as_usual() -> None:
    """Look as often as Python does by itself."""
    gc.set_threshold(_USUAL)


@contextmanager
def looking_rarely() -> Iterator[None]:
    """Look for cycles rarely: row after row makes many objects and none, and looking took a sixth of the time."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
