"""What promises on the error rate among shipped answers serve: ``python -m streamer_research.studies.serving_more FILE...``.

Each repetition draws prompts from a file with replacement: some whose labels calibrate, and others whose scores alone are
read (the unlabelled history). The file is the population, so that what a threshold serves and gets wrong is exact. Unit
`best`. Prints one Markdown table for each file.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streamer.calibration import (
    History,
    LabelledGroup,
    calibrate_groups,
    calibrate_selective,
    calibrate_selective_mean,
)
from streamer.calibration.history import level_above
from streamer.clouds.offline import calibration_groups
from streamer.research.experiments.score_cache import scored_file
from streamer_research.studies.command_arguments import (
    budget_table,
    count_argument,
    default_encoder,
    print_tables,
    table_parser,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

ALPHAS = (0.05, 0.1, 0.2)
LABELS = 250
HISTORY = 1000
REPETITIONS = 200
DELTA = 0.1
ABOVE = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class BestAnswers:
    """A file as a population: the best answer of each prompt.

    Attributes
    ----------
    scores, severities : shape (P,), in [0, 1]; a prompt that is held unscored has score 0.
    """

    scores: Floats
    severities: Floats

    def outcome(self, level: float) -> tuple[float, float]:
        """Return the share that scores above `level`, and the mean severity shipped per prompt."""
        above = self.scores > level
        return float(above.mean()), float((self.severities * above).mean())

    def oracle(self, alpha: float) -> float:
        """Return the lowest level, at least 0, above which at most alpha is wrong; closed if there is none."""
        levels = np.unique(np.append(self.scores, 0.0))
        for level in levels:
            share, exposed = self.outcome(float(level))
            if share and exposed <= alpha * share:
                return float(level)
        return math.inf

    def among(self, places: NDArray[np.intp]) -> BestAnswers:
        """Return these prompts alone."""
        return BestAnswers(self.scores[places], self.severities[places])

    def groups(self, drawn: Iterable[int]) -> list[LabelledGroup]:
        """Return drawn prompts as calibration groups, each by a name of its own."""
        return [
            LabelledGroup(f"g{n}", ("a",), self.scores[one : one + 1], self.severities[one : one + 1])
            for n, one in enumerate(drawn)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """What one repetition draws.

    Attributes
    ----------
    groups : labelled, drawn from all prompts.
    high : as many, drawn from those that score above `floor`.
    history, floor : of the unlabelled prompts.
    """

    groups: list[LabelledGroup]
    high: list[LabelledGroup]
    history: History
    floor: float
    seed: int

    @classmethod
    def from_prompts(cls, prompts: BestAnswers, labels: int, seed: int) -> Drawn:
        rng = np.random.default_rng([20261123, seed])
        unlabelled = prompts.scores[rng.integers(len(prompts.scores), size=HISTORY)]
        floor = level_above(unlabelled, ABOVE)
        above = np.flatnonzero(prompts.scores > floor)
        return cls(
            prompts.groups(rng.integers(len(prompts.scores), size=labels).tolist()),
            prompts.groups(above[rng.integers(len(above), size=labels)].tolist()) if len(above) else [],
            History.of(unlabelled),
            floor,
            seed,
        )


METHODS: dict[str, Callable[[Drawn, float], float]] = {
    "`mean` (bounds exposure)": lambda drawn, alpha: (
        calibrate_groups(drawn.groups, alpha=alpha, seed=drawn.seed).value
    ),
    "`selective`": lambda drawn, alpha: (
        calibrate_selective(
            drawn.groups, alpha=alpha, delta=DELTA, history=drawn.history, seed=drawn.seed
        ).value
    ),
    "`selective`, no history": lambda drawn, alpha: (
        calibrate_selective(drawn.groups, alpha=alpha, delta=DELTA, seed=drawn.seed).value
    ),
    f"`selective`, `--label-above {ABOVE:g}`": lambda drawn, alpha: (
        calibrate_selective(
            drawn.high, alpha=alpha, delta=DELTA, history=drawn.history, floor=drawn.floor, seed=drawn.seed
        ).value
    ),
    "`selective-mean`": lambda drawn, alpha: (
        calibrate_selective_mean(drawn.groups, alpha=alpha, seed=drawn.seed).value
    ),
}


def outcomes(
    prompts: BestAnswers, find: Callable[[Drawn, float], float], drawn: Sequence[Drawn], alpha: float
) -> Floats:
    """Return what each repetition serves and exposes: shape (repetitions, 2)."""
    return np.array([prompts.outcome(find(one, alpha)) for one in drawn])


def markdown_table(prompts: BestAnswers, alphas: Sequence[float], drawn: Sequence[Drawn]) -> str:
    """Write a file's table: for each budget what is served, exposed and wrong among what ships."""
    found = {
        name: [outcomes(prompts, find, drawn, alpha) for alpha in alphas] for name, find in METHODS.items()
    }
    found["the best cut, known from every label"] = [
        np.array([prompts.outcome(prompts.oracle(alpha))]) for alpha in alphas
    ]
    return budget_table(
        "method",
        ("served", "exposure", "wrong among shipped", "over budget"),
        alphas,
        (
            (name, [cell for one, alpha in zip(by_alpha, alphas, strict=True) for cell in _cells(one, alpha)])
            for name, by_alpha in found.items()
        ),
    )


def _cells(found: Floats, alpha: float) -> list[str]:
    served, exposed = found.mean(axis=0)
    over = float((found[:, 1] > alpha * found[:, 0] + 1e-12).mean())
    wrong = "–" if served == 0 else f"{exposed / served:.3f}"
    return [f"{served:.3f}", f"{exposed:.3f}", wrong, f"{over:.2f}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = table_parser(
        "serving_more",
        "Compare promises on the error rate among shipped answers, at equal labels, on files of response clouds.",
        alphas=ALPHAS,
        kept="scores",
    )
    parser.add_argument("--labels", type=count_argument(1), default=LABELS, help="labelled prompts")
    parser.add_argument(
        "--repetitions", type=count_argument(2), default=REPETITIONS, help="calibrations, seeded 0, 1, ..."
    )
    return print_tables(parser.parse_args(arguments), _tables)


def _tables(path: Path, options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    prompts = read_prompts(path, options.scores)
    drawn = [Drawn.from_prompts(prompts, options.labels, seed) for seed in range(options.repetitions)]
    yield (
        f"{path.name}: {len(prompts.scores)} prompts, {options.labels} labels, {options.repetitions} calibrations",
        markdown_table(prompts, options.alpha, drawn),
    )


def read_prompts(path: Path, folder: Path) -> BestAnswers:
    """Score a file's clouds, or read the scores that `folder` keeps."""
    from streamer.scoring.encoders.registry import DEFAULT_ENCODER, encoder_identity

    scored = scored_file(
        path,
        encoder_id=encoder_identity(DEFAULT_ENCODER).id,
        load_encoder=default_encoder,
        folder=folder,
    )
    groups = calibration_groups(scored, "best")
    unscored = len(scored) - len(groups)
    return BestAnswers(
        np.array([*(float(group.scores[0]) for group in groups), *([0.0] * unscored)]),
        np.array([*(float(group.severities[0]) for group in groups), *([0.0] * unscored)]),
    )


if __name__ == "__main__":
    sys.exit(main())
