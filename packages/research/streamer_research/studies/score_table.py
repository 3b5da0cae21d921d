"""What `full` serves beside single scores at equal labels: ``python -m streamer_research.studies.score_table FILE...``.

Each repetition draws prompts without replacement whose labels a gate has; on all others is measured what it serves and exposes.
Unit `best`. `full` gates the answer that its choice score puts first, and a single score, cut by `mean`, that which the score puts
first, of equal ones the one that Gram energy does. An answer without a label is bad. `--others` takes programs that score the
same answers with other packages; see ``benchmarks/other_scorers/README.md``. Prints one Markdown table for each file and number of
labels.
"""

import argparse
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamer.calibration import LabelledGroup, calibrate_groups
from streamer.calibration.full_fit import LEAST_GROUPS, allowed
from streamer.clouds.cloud import Cloud
from streamer.clouds.cloud_files import read_clouds
from streamer.clouds.compared_methods import FULL, full_counts
from streamer.clouds.line_files import append_lines, read_lines
from streamer.errors import StreamerError, Unavailable, UsageError
from streamer.research.experiments.score_cache import SCORES_FOLDER, measured_batches, own_embeddings
from streamer.research.experiments.stored_encoder import EMBEDDINGS_FOLDER, StoredEncoder
from streamer.scoring.blank import is_blank
from streamer.scoring.encoders.registry import DEFAULT_ENCODER, find_encoder
from streamer.scoring.gram import DECIMALS
from streamer.scoring.scorer import AnswerBatch
from streamer.scoring.signals.measured import Measured
from streamer.scoring.signals.signal_list import MEASURED, SignalList, choice_scores

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

ALPHAS = (0.05, 0.1, 0.2)
LABELS = (40, 60, 100, 250, 1000)
REPETITIONS = 100
GRAM = "gram"
SINGLE = (GRAM, "rouge_1", "chrf")
"""The signals that are cut alone, the first being what all others are compared with."""


@dataclass(frozen=True, slots=True)
class GateFigures:
    """What one gate does on the prompts that it has no label of."""

    served: float
    exposed: float


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A file as `full` sees it: shape (P, d), of each prompt's chosen answer, and shape (P,), how bad that is."""

    rows: NDArray[np.float32]
    severities: Floats

    def figures(
        self, labelled: Sequence[int], others: Places, alphas: Sequence[float], seed: int
    ) -> list[GateFigures]:
        """Fit and calibrate by the labels of some prompts, and measure on others. A severity between 0 and 1 draws its mark."""
        bad = np.random.default_rng([20261128, seed]).random(len(labelled)) < self.severities[labelled]
        counts = full_counts(self.rows[labelled], bad, self.rows[others])
        ships = [counts <= allowed(alpha, len(labelled)) for alpha in alphas]
        return [
            GateFigures(float(one.mean()), float((one * self.severities[others]).mean())) for one in ships
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Measures:
    """What is measured of one prompt: its single scores, shape (n,) each, and the chosen answer, with its row."""

    single: Mapping[str, Floats]
    chosen: int
    row: NDArray[np.float32]


def parted(prompts: int, labels: int, seed: int) -> tuple[list[int], Places]:
    """Draw which prompts are labelled; returns their places, and those of all others."""
    drawn = np.random.default_rng([20261124, seed]).permutation(prompts)
    return drawn[:labels].tolist(), drawn[labels:]


def gate_figures(
    answers: tuple[Floats, Floats], calibrating: Sequence[int], others: Places, alpha: float, seed: int
) -> GateFigures:
    """Calibrate by `mean` on some prompts, and measure on others."""
    scores, severities = answers
    groups = [
        LabelledGroup(f"g{n}", ("a",), scores[[one]], severities[[one]]) for n, one in enumerate(calibrating)
    ]
    above = scores[others] > calibrate_groups(groups, alpha=alpha, seed=seed).value
    return GateFigures(float(above.mean()), float((severities[others] * above).mean()))


def chosen_answers(
    clouds: Sequence[Cloud], found: Sequence[Sequence[float] | Floats], tie: Sequence[Floats]
) -> tuple[Floats, Floats]:
    """Return score and severity, shape (P,) each, of the answer to each prompt that scores highest and is not blank, of equal ones the one with the
    highest `tie`."""
    scores, severities = [], []
    for cloud, given, second in zip(clouds, found, tie, strict=True):
        own = np.asarray(given, dtype=np.float64).round(DECIMALS)
        written = [place for place, text in enumerate(cloud.texts) if not is_blank(text)]
        best = max(written, key=lambda place: (own[place], second[place], -place))
        scores.append(float(own[best]))
        severities.append(severity(cloud, best))
    return np.array(scores), np.array(severities)


def severity(cloud: Cloud, place: int) -> float:
    """How bad an answer is; 1 where nobody has said."""
    known = cloud.severities[place]
    return 1.0 if known is None else known


def measures(clouds: Sequence[Cloud], folder: Path) -> list[Measures]:
    """Measure clouds that have a written answer; embeddings are kept in `folder`."""
    signals = SignalList()
    single = [one for one in MEASURED if one.name in SINGLE]

    def measure(batch: AnswerBatch, cloud: Cloud) -> Measures:
        measured = Measured(batch, cloud.question)
        choice = np.where(measured.written, choice_scores(measured), -1.0)
        best = int(np.argmax(choice))
        return Measures(
            {one.name: one.of(measured) for one in single}, best, signals.of_measured(measured)[best]
        )

    encoder = None if own_embeddings(clouds) else StoredEncoder(DEFAULT_ENCODER, folder=folder, strict=False)
    return [one for one in measured_batches(clouds, encoder, measure) if one is not None]


def markdown_table(rows: Mapping[str, Sequence[Sequence[GateFigures]]], alphas: Sequence[float]) -> str:
    """Write a table: for each score, the first being what the others are compared with, for each
    draw the figures at each budget.
    """
    first = next(iter(rows.values()))
    written = []
    for name, draws in rows.items():
        cells: list[str] = []
        for place in range(len(alphas)):
            served = np.array([one[place].served for one in draws])
            exposed = np.array([one[place].exposed for one in draws])
            more = served - np.array([one[place].served for one in first])
            cells += [
                f"{served.mean():.3f}",
                "" if draws is first else f"{more.mean():+.3f} ± {_error(more):.3f}",
                f"{exposed.mean():.3f} ± {_error(exposed):.3f}",
            ]
        written.append((f"`{name}`", cells))
    return budget_table("score", ("served", "more than Gram", "exposure"), alphas, written)


def _error(values: Floats) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def other_scores(program: Path, clouds: Sequence[Cloud], folder: Path) -> list[dict[str, tuple[float, ...]]]:
    """Return what a program of another package makes of the clouds, or what `folder` keeps of it.

    Raises `UsageError` if the program cannot be read, or its scores are none. Raises `Unavailable`
    if there is no uv to run it with, or the program fails.
    """
    try:
        source = program.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {program}: {error.strerror or error}") from None
    lines = "".join(json.dumps({"texts": cloud.texts}) + "\n" for cloud in clouds)
    digest = hashlib.sha256(source + b"\0" + DEFAULT_ENCODER.encode() + lines.encode()).hexdigest()[:32]
    record = folder / f"{program.stem}-{digest}.jsonl"
    found: list[dict[str, tuple[float, ...]]] = read_lines(record, strict_type=dict[str, tuple[float, ...]])
    if len(found) != len(clouds):
        found = _run(program, lines)
        record.unlink(missing_ok=True)
        append_lines(record, found)
    sizes = [len(cloud.texts) for cloud in clouds]
    names = found[0].keys() if found else set()
    for one, size in zip(found, sizes, strict=True) if len(found) == len(sizes) else [({}, 0)]:
        if (
            not one
            or one.keys() != names
            or any(len(row) != size or not all(0 <= x <= 1 for x in row) for row in one.values())
        ):
            record.unlink(missing_ok=True)
            raise UsageError(f"{program} must write one number in [0, 1] for each answer, a line a cloud")
    return found


def _run(program: Path, lines: str) -> list[dict[str, tuple[float, ...]]]:
    uv = shutil.which("uv")
    if uv is None:
        raise Unavailable(f"{program} is run by uv, which is not on the PATH: pip install uv")
    sys.stderr.write(
        f"{program.name}: uv makes its environment the first time, and each answer is scored beside the others\n"
    )
    # What it prints but scores, progress bars above all, goes to standard error.
    done = subprocess.run(  # noqa: S603 - a program that whoever runs the command names
        [
            uv,
            "run",
            "--quiet",
            "--no-project",
            "--script",
            str(program),
            str(find_encoder(DEFAULT_ENCODER).folder),
        ],
        input=lines,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    if done.returncode:
        raise Unavailable(f"{program} ended with status {done.returncode}; what it said is above")
    try:
        return [
            {str(name): tuple(map(float, row)) for name, row in json.loads(line).items()}
            for line in done.stdout.splitlines()
        ]
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{program} wrote a line that is no object of numbers: {error}") from None


def budget_table(
    name: str, columns: Sequence[str], alphas: Sequence[float], rows: Iterable[tuple[str, Iterable[str]]]
) -> str:
    """Write a Markdown table: by row a name under `name`, then for each budget the cells of `columns`."""
    heads = [f"α = {alpha:g}: {' | '.join(columns)}" for alpha in alphas]
    lines = [f"| {name} | {' | '.join(heads)} |", "|---" * (1 + len(columns) * len(alphas)) + "|"]
    return "\n".join([*lines, *(f"| {row} | {' | '.join(cells)} |" for row, cells in rows)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m streamer_research.studies.score_table",
        description="Compare what `full` and single scores serve, at equal labels, on files of response clouds.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="response clouds")
    parser.add_argument("--alpha", type=float, nargs="+", default=list(ALPHAS))
    parser.add_argument(
        "--embeddings", type=Path, default=EMBEDDINGS_FOLDER, help="where embeddings are kept"
    )
    parser.add_argument(
        "--scores", type=Path, default=SCORES_FOLDER, help="where scores of --others are kept"
    )
    parser.add_argument(
        "--labels",
        type=int,
        nargs="+",
        default=list(LABELS),
        help="labelled prompts; numbers above four fifths of a file are left out",
    )
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="draws, seeded 0, 1, ...")
    parser.add_argument("--together", action="store_true", help="take all files as one")
    parser.add_argument(
        "--others",
        type=Path,
        nargs="*",
        default=[],
        metavar="PROGRAM",
        help="programs that score with other packages, run by uv",
    )
    options = parser.parse_args(arguments)
    try:
        for path in options.files:
            for title, table in _tables(path, options):
                sys.stdout.write(f"### {title}\n\n{table}\n\n")
                sys.stdout.flush()
    except StreamerError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _tables(path: Path, options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    if options.together and path != options.files[0]:
        return
    paths = options.files if options.together else [path]
    name = " and ".join(one.name for one in paths)
    clouds = [cloud for one in paths for cloud in read_clouds(one) if not all(map(is_blank, cloud.texts))]
    if len(clouds) < LEAST_GROUPS * 5 // 4:
        raise UsageError(
            f"{name}: {len(clouds)} prompts have a written answer, and {LEAST_GROUPS * 5 // 4} are needed"
        )
    found = measures(clouds, options.embeddings)
    full = Rows(
        np.array([one.row for one in found]),
        np.array([severity(cloud, one.chosen) for cloud, one in zip(clouds, found, strict=True)]),
    )
    gram = [one.single[GRAM] for one in found]
    single = {kind: chosen_answers(clouds, [one.single[kind] for one in found], gram) for kind in SINGLE}
    for program in options.others:
        theirs = other_scores(program, clouds, options.scores)
        single |= {kind: chosen_answers(clouds, [one[kind] for one in theirs], gram) for kind in theirs[0]}
    for labels in (one for one in options.labels if one <= len(clouds) * 4 // 5):
        rows: dict[str, list[list[GateFigures]]] = {kind: [] for kind in (GRAM, FULL, *single)}
        for seed in range(options.repetitions):
            labelled, others = parted(len(clouds), labels, seed)
            rows[FULL].append(full.figures(labelled, others, options.alpha, seed))
            for kind, one in single.items():
                rows[kind].append(
                    [gate_figures(one, labelled, others, alpha, seed) for alpha in options.alpha]
                )
        yield (
            f"{name}: {labels} labelled prompts, measured on the other {len(clouds) - labels}, "
            f"{options.repetitions} draws",
            markdown_table(rows, options.alpha),
        )


if __name__ == "__main__":
    sys.exit(main())
