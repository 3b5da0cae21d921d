"""What the modules of this package that are commands (``python -m ...``) have in common: their arguments, and their end."""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from streamer.errors import StreamerError
from streamer.research.experiments.embedding_store import EMBEDDINGS_FOLDER
from streamer.research.experiments.score_cache import SCORES_FOLDER
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

    return CachedEncoder(load_encoder(strict=False))


def table_parser(
    name: str, description: str, *, alphas: Sequence[float], kept: Literal["scores", "embeddings"]
) -> argparse.ArgumentParser:
    """Return the parser of an experiment on files of response clouds; `kept` is what it computes once."""
    folder = SCORES_FOLDER if kept == "scores" else EMBEDDINGS_FOLDER
    parser = argparse.ArgumentParser(
        prog=f"python -m streamer_research.studies.{name}", description=description
    )
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="response clouds, .jsonl or .jsonl.gz"
    )
    parser.add_argument("--alpha", type=alpha_argument, nargs="+", default=list(alphas))
    parser.add_argument(f"--{kept}", type=Path, default=folder, help=f"where {kept} are kept")
    return parser


def budget_table(
    name: str, columns: Sequence[str], alphas: Sequence[float], rows: Iterable[tuple[str, Iterable[str]]]
) -> str:
    """Write a Markdown table: by row a name under `name`, then for each budget the cells of `columns`."""
    heads = [f"α = {alpha:g}: {' | '.join(columns)}" for alpha in alphas]
    lines = [f"| {name} | {' | '.join(heads)} |", "|---" * (1 + len(columns) * len(alphas)) + "|"]
    return "\n".join([*lines, *(f"| {row} | {' | '.join(cells)} |" for row, cells in rows)])


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
