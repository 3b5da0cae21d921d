"""What a learned score serves beside Gram energy at equal labels: ``python -m streamer.research.experiments.learned_score FILE...``.

Each repetition draws prompts without replacement whose labels a gate has; on all others is measured what it serves and
exposes. Gram energy calibrates on all labels; a learned score is fitted on half of the prompts and calibrated on the
other half. Unit `best`. Prints one Markdown table for each file and number of labels.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from streamer.calibration import calibrate_groups
from streamer.clouds.cloud_files import read_clouds
from streamer.errors import UsageError
from streamer.gates.folds import fold_of
from streamer.research.experiments.command_arguments import (
    budget_table,
    count_argument,
    print_tables,
    table_parser,
)
from streamer.research.experiments.score_cache import agreement_of, own_embeddings
from streamer.research.experiments.serving_more import BestAnswers
from streamer.research.experiments.stored_encoder import StoredEncoder
from streamer.scoring.agreement import FEATURES
from streamer.scoring.blank import is_blank
from streamer.scoring.encoders.registry import DEFAULT_ENCODER
from streamer.scoring.fitting import (
    LEAST_PROMPTS,
    Example,
    NothingToLearn,
    Worth,
    fit_and_measure,
    missing_prompts,
)
from streamer.scoring.gram import DECIMALS
from streamer.scoring.learned import UnknownModel, learned_scores

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from streamer.clouds.cloud import Cloud
    from streamer.scoring.learned import LearnedModel, Order

    Floats = NDArray[np.float64]

ALPHAS = (0.05, 0.1)
LABELS = (LEAST_PROMPTS,)
REPETITIONS = 100
_GRAM = FEATURES.index("gram")


@dataclass(frozen=True, slots=True, eq=False)
class LabelledPrompt:
    """One prompt of a file.

    Attributes
    ----------
    features : of its answers, shape (n, features).
    blank : n marks.
    severities : shape (n,); an answer without one counts as 1.
    best : position of the answer that Gram energy puts first.
    models : n language models; nothing at all where no answer names one.
    """

    name: str
    features: Floats
    blank: list[bool]
    severities: Floats
    best: int
    models: tuple[str, ...]

    @classmethod
    def of(cls, cloud: Cloud, features: Floats) -> LabelledPrompt:
        blank = [is_blank(text) for text in cloud.texts]
        written = np.flatnonzero(~np.array(blank))
        gram = features[:, _GRAM].round(DECIMALS)
        severities = np.array([1.0 if one is None else one for one in cloud.severities], dtype=np.float64)
        best = int(written[np.argmax(gram[written])])
        return cls(cloud.batch_id, features, blank, severities, best, cloud.models)

    def example(self, *, every: bool) -> Example:
        """Its labels: of the best answer alone, or of every answer."""
        places = np.flatnonzero(~np.array(self.blank)) if every else np.array([self.best])
        return Example(
            self.name,
            self.features[places],
            self.severities[places],
            int(np.flatnonzero(places == self.best)[0]),
            tuple(self.models[place] for place in places.tolist() if self.models),
            frozenset(self.models),
        )

    def scores(self, model: LearnedModel) -> Floats:
        """Apply a model; what it must hold, as a language model is new to it, scores 0."""
        try:
            return learned_scores(model, self.features, self.blank, self.models)
        except UnknownModel:
            return np.zeros(len(self.blank))


@dataclass(frozen=True, slots=True)
class GateFigures:
    """What one gate does on the prompts that it has no label of, and whether it may have its score."""

    served: float
    exposed: float
    proposed: bool = False


def parted(prompts: int, labels: int, seed: int) -> tuple[list[int], NDArray[np.intp]]:
    """Draw which prompts are labelled; returns their places, and those of all others."""
    drawn = np.random.default_rng([20261124, seed]).permutation(prompts)
    return drawn[:labels].tolist(), drawn[labels:]


def repetition(
    prompts: Sequence[LabelledPrompt],
    labels: int,
    seed: int,
    alphas: Sequence[float],
    rows: Sequence[tuple[str, bool, Order]] | None = None,
) -> dict[str, list[GateFigures]]:
    """Draw labels once; returns for each way to score, or for some of `LEARNED_ROWS`, what a gate of each budget does."""
    labelled, others = parted(len(prompts), labels, seed)
    salt = f"experiment {seed}".encode()
    fit = [p for p in labelled if fold_of(salt, "experiment", prompts[p].name) == "fit"]
    calibrate = [p for p in labelled if p not in set(fit)]
    by_gram = _chosen(prompts, [one.features[:, _GRAM].round(DECIMALS) for one in prompts])
    found = {GRAM_ROW: [gate_figures(by_gram, labelled, others, alpha, seed) for alpha in alphas]}
    for row, every, order in LEARNED_ROWS if rows is None else rows:
        model, worths = _learned(
            [prompts[p].example(every=every) for p in fit], order, alphas, calibrate, labels
        )
        if model is None:
            found[row] = found[GRAM_ROW]
            continue
        chosen = _chosen(prompts, [one.scores(model) for one in prompts])
        found[row] = [
            replace(gate_figures(chosen, calibrate, others, alpha, seed), proposed=worth.shown)
            for alpha, worth in zip(alphas, worths, strict=True)
        ]
    return found


def gate_figures(
    answers: BestAnswers, calibrating: Sequence[int], others: NDArray[np.intp], alpha: float, seed: int
) -> GateFigures:
    """Calibrate by `mean` on some prompts, and measure on others."""
    level = calibrate_groups(answers.groups(calibrating), alpha=alpha, seed=seed).value
    return GateFigures(*answers.among(others).outcome(level))


def _chosen(prompts: Sequence[LabelledPrompt], scores: Sequence[Floats]) -> BestAnswers:
    """The answer to each prompt that scores highest, the first one on a tie."""
    best = [
        int(np.argmax(np.where(one.blank, -1.0, found))) for one, found in zip(prompts, scores, strict=True)
    ]
    return BestAnswers(
        np.array([found[place] for found, place in zip(scores, best, strict=True)]),
        np.array([one.severities[place] for one, place in zip(prompts, best, strict=True)]),
    )


GRAM_ROW = "Gram energy"
BEST_ROW = "learned, one label a prompt"
EVERY_ROW = "learned, every answer of the prompts that fit it labelled"
OWN_ROW = "the same, choosing its own answer (no gate does)"
LEARNED_ROWS: tuple[tuple[str, bool, Order], ...] = (
    (BEST_ROW, False, "gram"),
    (EVERY_ROW, True, "gram"),
    (OWN_ROW, True, "own"),
)
"""Name, whether every answer of a prompt that fits is labelled or the best alone, and who chooses the answer."""


def _learned(
    examples: Sequence[Example],
    order: Order,
    alphas: Sequence[float],
    calibrate: Sequence[int],
    labels: int,
) -> tuple[LearnedModel | None, list[Worth]]:
    try:
        return fit_and_measure(
            examples, order=order, alphas=alphas, calibrating=len(calibrate), all_labelled=labels
        )
    except NothingToLearn:
        return None, []


def markdown_table(
    found: Sequence[dict[str, list[GateFigures]]], alphas: Sequence[float], labels: int
) -> str:
    """Write the table of one file and one number of labels."""
    refused = missing_prompts(labels) is not None
    rows: list[tuple[str, list[str]]] = []
    for row in (GRAM_ROW, BEST_ROW, EVERY_ROW, OWN_ROW):
        for rule in [False, True] if row in (BEST_ROW, EVERY_ROW) else [False]:
            name = f"{row}, where it is proposed; else Gram energy" if rule else row
            cells = (_cells(found, row, at, by_rule=rule, refused=refused) for at in range(len(alphas)))
            rows.append((name, list(chain.from_iterable(cells))))
    return budget_table("score", ("served", "more than Gram", "exposure", "proposed"), alphas, rows)


def _cells(
    found: Sequence[dict[str, list[GateFigures]]], row: str, place: int, *, by_rule: bool, refused: bool
) -> list[str]:
    gram = [one[GRAM_ROW][place] for one in found]
    own = [one[row][place] for one in found]
    proposed = [one.proposed and not refused for one in own]
    if by_rule:
        own = [one if may else other for one, may, other in zip(own, proposed, gram, strict=True)]
    more = np.array([one.served - other.served for one, other in zip(own, gram, strict=True)])
    error = more.std(ddof=1) / math.sqrt(len(more))
    return [
        f"{np.mean([one.served for one in own]):.3f}",
        "" if row == GRAM_ROW else f"{more.mean():+.3f} ± {error:.3f}",
        f"{np.mean([one.exposed for one in own]):.3f}",
        f"{np.mean(proposed):.2f}" if by_rule else "",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = table_parser(
        "learned_score",
        "Compare learned scores with Gram energy, at equal labels, on files of response clouds.",
        alphas=ALPHAS,
        kept="embeddings",
    )
    parser.add_argument(
        "--labels",
        type=count_argument(20),
        nargs="+",
        default=list(LABELS),
        help="labelled prompts; at most four fifths of a file",
    )
    parser.add_argument(
        "--repetitions", type=count_argument(2), default=REPETITIONS, help="draws, seeded 0, 1, ..."
    )
    return print_tables(parser.parse_args(arguments), _tables)


def _tables(path: Path, options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    prompts = read_prompts(path, options.embeddings)
    if len(prompts) < 2:
        raise UsageError(f"{path}: at least two prompts must have a written answer, and {len(prompts)} have")
    for wanted in dict.fromkeys(min(one, len(prompts) * 4 // 5) for one in options.labels):
        found = [repetition(prompts, wanted, seed, options.alpha) for seed in range(options.repetitions)]
        yield (
            f"{path.name}: {wanted} labelled prompts, measured on the other {len(prompts) - wanted}, "
            f"{options.repetitions} draws",
            markdown_table(found, options.alpha, wanted),
        )


def read_prompts(path: Path, folder: Path) -> list[LabelledPrompt]:
    """Measure a file's clouds, those that have a written answer."""
    clouds = list(read_clouds(path))
    encoder = None if own_embeddings(clouds) else StoredEncoder(DEFAULT_ENCODER, folder=folder)
    return [
        LabelledPrompt.of(cloud, features)
        for cloud, features in zip(clouds, agreement_of(clouds, encoder), strict=True)
        if features is not None
    ]


if __name__ == "__main__":
    sys.exit(main())
