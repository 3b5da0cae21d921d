"""How often Python looks for garbage: seldom while a program starts, because what it imports stays."""

from __future__ import annotations

import gc

_USUAL = gc.get_threshold()[0]
_SELDOM = 50_000


def look_seldom() -> None:
    """Look for garbage after so many new objects: looking as often as usual was a fifth of what a start takes."""
    gc.set_threshold(_SELDOM)


def look_as_usual() -> None:
    """Look as often as Python does by itself."""
    gc.set_threshold(_USUAL)
