"""What the modules of this package that are commands (``python -m ...``) have in common: their arguments, and their end."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from streamer.errors import StreamerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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


def table_parser(
    name: str, description: str, *, alphas: Sequence[float], kept: str, folder: Path
) -> argparse.ArgumentParser:
    """Return the parser of an experiment on files of response clouds; `kept` in `folder` is what it computes once."""
    parser = argparse.ArgumentParser(
        prog=f"python -m streamer.research.experiments.{name}", description=description
    )
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="response clouds, .jsonl or .jsonl.gz"
    )
    parser.add_argument("--alpha", type=alpha_argument, nargs="+", default=list(alphas))
    parser.add_argument(f"--{kept}", type=Path, default=folder, help=f"where {kept} are kept")
    return parser


def print_tables(
    options: argparse.Namespace, tables: Callable[[Path, argparse.Namespace], Iterator[tuple[str, str]]]
) -> int:
    """Print the tables of each file under their titles, each as soon as it is there; returns the exit status."""
    try:
        for path in options.files:
            for title, table in tables(path, options):
                sys.stdout.write(f"### {title}\n\n{table}\n\n")
                sys.stdout.flush()
    except StreamerError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0
