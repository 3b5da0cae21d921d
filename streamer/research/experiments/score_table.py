"""What each score serves at equal labels: ``python -m streamer.research.experiments.score_table FILE...``.

Each repetition draws prompts without replacement whose labels a gate has; on all others is measured what it serves and exposes.
Rows are of the method `mean`, which bounds exposure; those of Gram energy by `selective` and
`selective-mean` bound what is wrong among what ships. Unit `best`: a score gates the answer that it puts first, of equal ones the one that Gram
energy puts first. `--others` takes programs that score the same answers with other packages; see
``benchmarks/other_scorers/README.md``. Prints one Markdown table for each file.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streamer.calibration import (
    History,
    LabelledGroup,
    calibrate_groups,
    calibrate_selective,
    calibrate_selective_mean,
)
from streamer.clouds.cloud_files import read_clouds
from streamer.clouds.line_record import append_lines, read_lines
from streamer.errors import Unavailable, UsageError
from streamer.research.experiments.command_arguments import (
    budget_table,
    count_argument,
    default_encoder,
    print_tables,
    table_parser,
)
from streamer.research.experiments.score_cache import SCORES_FOLDER, every_score
from streamer.research.experiments.serving_more import DELTA, BestAnswers
from streamer.scoring.blank import is_blank
from streamer.scoring.encoders.registry import DEFAULT_ENCODER, encoder_identity, find_encoder
from streamer.scoring.gram import DECIMALS
from streamer.scoring.registry import GRAM, SCORERS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from streamer.clouds.cloud import Cloud

    Floats = NDArray[np.float64]
    Scores = dict[str, Sequence[float]]

ALPHAS = (0.05, 0.1, 0.2)
LABELS = 250
REPETITIONS = 100
BEST_CUT = "the best cut that knows every label"
"""In place of a calibration: the lowest above which at most alpha is wrong, among what it is measured on."""
FIRST_OF_EQUAL = ("kernel-entropy", "cluster-entropy")
"""Scorers that speak of the prompt: they have a second row, for what the first answer would make of them."""


@dataclass(frozen=True, slots=True)
class GateFigures:
    """What one gate does on the prompts that it has no label of."""

    served: float
    exposed: float


def parted(prompts: int, labels: int, seed: int) -> tuple[list[int], NDArray[np.intp]]:
    """Draw which prompts are labelled; returns their places, and those of all others."""
    drawn = np.random.default_rng([20261124, seed]).permutation(prompts)
    return drawn[:labels].tolist(), drawn[labels:]


def gate_figures(
    answers: BestAnswers, calibrating: Sequence[int], others: NDArray[np.intp], alpha: float, seed: int
) -> GateFigures:
    """Calibrate by `mean` on some prompts, and measure on others."""
    level = calibrate_groups(answers.groups(calibrating), alpha=alpha, seed=seed).value
    return GateFigures(*answers.among(others).outcome(level))


def chosen_answers(
    clouds: Sequence[Cloud], found: Sequence[Sequence[float]], tie: Sequence[Floats]
) -> BestAnswers:
    """Take of each prompt the answer that scores highest and is not blank, of equal ones the one with the highest `tie`.

    An answer without a severity counts as 1.
    """
    scores, severities = [], []
    for cloud, given, second in zip(clouds, found, tie, strict=True):
        own = np.asarray(given, dtype=np.float64).round(DECIMALS)
        written = [place for place, text in enumerate(cloud.texts) if not is_blank(text)]
        best = max(written, key=lambda place: (own[place], second[place], -place))
        severity = cloud.severities[best]
        scores.append(float(own[best]))
        severities.append(1.0 if severity is None else severity)
    return BestAnswers(np.array(scores), np.array(severities))


def by_promise(
    answers: BestAnswers, labelled: Sequence[int], others: NDArray[np.intp], alpha: float, seed: int
) -> dict[str, GateFigures]:
    """Calibrate for promises on what is wrong among what ships; the scores of the others are the unlabelled history."""
    groups = [  # named by place: coins for graded severities follow from names
        LabelledGroup(f"g{p}", ("a",), answers.scores[p : p + 1], answers.severities[p : p + 1])
        for p in labelled
    ]
    measured = answers.among(others)
    history = History.of(measured.scores)
    levels = {
        "selective": calibrate_selective(groups, alpha=alpha, delta=DELTA, history=history, seed=seed).value,
        "selective-mean": calibrate_selective_mean(groups, alpha=alpha, seed=seed).value,
        BEST_CUT: measured.oracle(alpha),
    }
    return {name: GateFigures(*measured.outcome(level)) for name, level in levels.items()}


def markdown_table(rows: dict[str, list[list[GateFigures]]], alphas: Sequence[float]) -> str:
    """Write a table.

    Parameters
    ----------
    rows : for each score, the first being what the others are compared with, for each draw the figures at each budget.
    """
    first = next(iter(rows.values()))
    written = []
    for name, draws in rows.items():
        cells: list[str] = []
        for place in range(len(alphas)):
            served = np.array([one[place].served for one in draws])
            exposed = float(np.mean([one[place].exposed for one in draws]))
            more = served - np.array([one[place].served for one in first])
            low, high = np.quantile(more, [0.05, 0.95])
            wrong = f"{exposed / served.mean():.3f}" if served.any() else "–"
            cells += [
                f"{served.mean():.3f}",
                "" if draws is first else f"{more.mean():+.3f} ({low:+.2f} to {high:+.2f})",
                f"{exposed:.3f}",
                wrong,
            ]
        written.append((name, cells))
    return budget_table(
        "score", ("served", "more than Gram", "exposure", "wrong among shipped"), alphas, written
    )


def other_scores(program: Path, clouds: Sequence[Cloud], folder: Path) -> list[dict[str, tuple[float, ...]]]:
    """Return what a program of another package makes of the clouds, or what `folder` keeps of it.

    Raises
    ------
    UsageError
        If the program cannot be read, or its scores are none.
    Unavailable
        If there is no uv to run it with, or the program fails.
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = table_parser(
        "score_table",
        "Compare what scores serve, at equal labels, on files of response clouds.",
        alphas=ALPHAS,
        kept="embeddings",
    )
    parser.add_argument("--scores", type=Path, default=SCORES_FOLDER, help="where scores are kept")
    parser.add_argument(
        "--labels",
        type=count_argument(20),
        default=LABELS,
        help="labelled prompts; at most four fifths of a file",
    )
    parser.add_argument(
        "--repetitions", type=count_argument(2), default=REPETITIONS, help="draws, seeded 0, 1, ..."
    )
    parser.add_argument(
        "--others",
        type=Path,
        nargs="*",
        default=[],
        metavar="PROGRAM",
        help="programs that score with other packages, run by uv",
    )
    return print_tables(parser.parse_args(arguments), _tables)


def _tables(path: Path, options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    clouds = [cloud for cloud in read_clouds(path) if not all(map(is_blank, cloud.texts))]
    if not clouds:
        raise UsageError(f"{path} has no cloud with a written answer")
    labels = min(options.labels, len(clouds) * 4 // 5)
    by_score = _gated(clouds, options)
    rows: dict[str, list[list[GateFigures]]] = {name: [] for name in by_score}
    promised: dict[str, list[list[GateFigures]]] = {}
    for seed in range(options.repetitions):
        labelled, others = parted(len(clouds), labels, seed)
        for name, one in by_score.items():
            rows[name].append([gate_figures(one, labelled, others, alpha, seed) for alpha in options.alpha])
        promises = [by_promise(by_score[GRAM], labelled, others, alpha, seed) for alpha in options.alpha]
        for name in promises[0]:
            row = name if name == BEST_CUT else f"`{name}`"
            promised.setdefault(f"`{GRAM}`, {row}", []).append([one[name] for one in promises])
    ordered = {GRAM: rows.pop(GRAM)} | rows | promised
    yield (
        f"{path.name}: {labels} labelled prompts, measured on the other {len(clouds) - labels}, "
        f"{options.repetitions} draws",
        markdown_table(
            {f"`{n}`" if n in rows or n == GRAM else n: one for n, one in ordered.items()}, options.alpha
        ),
    )


def _gated(clouds: Sequence[Cloud], options: argparse.Namespace) -> dict[str, BestAnswers]:
    found = every_score(
        clouds,
        encoder_id=encoder_identity(DEFAULT_ENCODER).id,
        load_encoder=default_encoder,
        folder=options.scores,
    )
    scores: list[Scores] = [dict(one or {}) for one in found]
    gram = [np.asarray(one[GRAM]) for one in scores]
    gated = {
        scorer.name: chosen_answers(clouds, [one[scorer.name] for one in scores], gram) for scorer in SCORERS
    }
    for name in FIRST_OF_EQUAL:
        flat = [np.zeros(len(one)) for one in gram]
        gated[f"{name}, shipping the first answer"] = chosen_answers(
            clouds, [[max(one[name])] * len(one[name]) for one in scores], flat
        )
    for program in options.others:
        theirs = other_scores(program, clouds, options.scores)
        for name in theirs[0]:
            gated[name] = chosen_answers(clouds, [one[name] for one in theirs], gram)
    return gated


if __name__ == "__main__":
    sys.exit(main())
