"""What the modules of this package that are commands (``python -m ...``) read from their command lines."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamer.scoring.encoders.encoder import CachedEncoder


def alpha_argument(text: str) -> float:
    """Read a budget in (0, 1)."""
    alpha = float(text)
    if not 0 < alpha < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return alpha


def count_argument(least: int) -> Callable[[str], int]:
    """Return what reads a whole number of at least `least`."""

    def count(text: str) -> int:
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return number

    return count


def default_encoder() -> CachedEncoder:
    """Load the default encoder; takes seconds."""
    from streamer.scoring.encoders.encoder import CachedEncoder
    from streamer.scoring.encoders.registry import load_encoder

    return CachedEncoder(load_encoder())
