"""Whether a learned score is refused, or serves more, on clouds that are made to mislead it.

    python benchmarks/refusals.py [--draws 40] [--only WORDS] [--short]

Each case is a population of made-up clouds with known labels. A draw labels 250 prompts, follows `streamer score fit` (the
learned score where it is proposed, Gram energy where it is refused), and measures on all others what a gate serves and exposes
at a budget of .1. Exit status 1 where on average it serves less than Gram energy by more than the noise of the draws, exposes
more than the budget by more than that, or proposes a score where there is nothing to learn.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import binom, norm

from streamer.labels.answer_forms import answer_batch
from streamer.research.experiments.learned_score import (
    BEST_ROW,
    GRAM_ROW,
    LEARNED_ROWS,
    LabelledPrompt,
    repetition,
)
from streamer.scoring.agreement import FEATURES, agreement
from streamer.scoring.fitting import missing_prompts
from streamer.scoring.gram import DECIMALS

if TYPE_CHECKING:
    from collections.abc import Callable

ALPHA = 0.1
ANSWERS, DIMENSION = 5, 8
CHANCE = 0.01
"""That a case fails by chance, were it at its bound, all cases together."""
WORDS = ["paris", "lyon", "nice", "lille", "nantes", "rennes", "brest", "tours"]
_GRAM = FEATURES.index("gram")
_ROWS = [row for row in LEARNED_ROWS if row[0] == BEST_ROW]


@dataclass(frozen=True)
class Case:
    """A population.

    `risk` : the chance that an answer is bad, from how far its prompt's answers are spread, in [0, 1], and how long they are, in
    [0, 1]. `shapes` : distinct clouds (None: every prompt has its own). `copies` : prompts that share a cloud and a label.
    `learnable` : False where no score can be better than Gram energy.
    """

    says: str
    risk: Callable[[float, float], float]
    prompts: int = 2000
    labels: int = 250
    shapes: int | None = None
    copies: int = 1
    learnable: bool = True


def partly_length(part: float) -> Callable[[float, float], float]:
    """Return a risk of which agreement says all but this part, which is that of long answers."""
    return lambda spread, long: (1 - part) * spread**2 + part * float(long > 0.6)


CASES = [
    Case("no signal: labels by a coin", lambda _spread, _long: 0.3, learnable=False),
    Case("Gram energy says all there is", lambda spread, _long: spread**2),
    Case("inverted: what agrees best is bad", lambda spread, _long: 0.9 * (1 - spread) ** 2),
    Case("long answers are bad, agreement says nothing", lambda _spread, long: float(long > 0.6)),
    Case("all labels fine", lambda _spread, _long: 0.0, learnable=False),
    Case("all labels bad", lambda _spread, _long: 1.0, learnable=False),
    Case("one label in a hundred bad", lambda _spread, _long: 0.01, learnable=False),
    Case("heavy ties: six distinct clouds", lambda spread, _long: 0.5 * spread, shapes=6),
    Case("every prompt ten times, with its label", lambda spread, _long: spread**2, copies=10),
    Case("every prompt ten times, labels by a coin", lambda _spread, _long: 0.3, copies=10, learnable=False),
    Case(
        "a tiny file: 60 labels",
        lambda _spread, long: float(long > 0.6),
        prompts=400,
        labels=60,
        learnable=False,
    ),
    Case("250 labels of a file of 300", lambda spread, _long: spread**2, prompts=300),
    *(
        Case(f"Gram energy says most, and the length of answers {part:.0%} of the risk", partly_length(part))
        for part in (0.1, 0.2, 0.3, 0.5)
    ),
]


def cloud(rng: np.random.Generator) -> tuple[np.ndarray, float, float]:
    """Return how the answers of one cloud agree, how far they are spread, and how long they are."""
    spread, long = rng.random(), rng.random()
    rows = rng.normal(size=DIMENSION) + 2.0 * spread * rng.normal(size=(ANSWERS, DIMENSION))
    said = rng.choice(WORDS, size=ANSWERS, p=np.r_[1 - 0.7 * spread, np.full(7, 0.1 * spread)])
    texts = [f"{word} {'and so on ' * int(20 * long)}" for word in said]
    return agreement(answer_batch(texts, rows, [False] * ANSWERS)), spread, long


def population(case: Case, seed: int) -> list[LabelledPrompt]:
    rng = np.random.default_rng([20261123, seed])
    count = case.prompts // case.copies
    clouds = [cloud(rng) for _ in range(case.shapes or count)]
    prompts = []
    for n in range(count):
        features, spread, long = clouds[n % len(clouds)]
        severities = np.full(ANSWERS, float(rng.random() < case.risk(spread, long)))
        best = int(np.argmax(features[:, _GRAM].round(DECIMALS)))
        prompts += [
            LabelledPrompt(f"{n}-{copy}", features, [False] * ANSWERS, severities, best, ())
            for copy in range(case.copies)
        ]
    return prompts


def judged(case: Case, seed: int, draws: int) -> tuple[str, bool]:
    """Return a case's line, and whether it holds."""
    prompts = population(case, seed)
    more, exposed, proposed = [], [], 0
    for draw in range(draws):
        found = repetition(prompts, case.labels, draw, [ALPHA], _ROWS)
        (gram,), (own,) = found[GRAM_ROW], found[BEST_ROW]
        takes = own.proposed and missing_prompts(case.labels) is None
        used = own if takes else gram
        proposed += takes
        more.append(used.served - gram.served)
        exposed.append(used.exposed)
    width = norm.isf(CHANCE / (2 * len(CASES))) / np.sqrt(draws)
    holds = bool(
        np.mean(more) >= -width * np.std(more, ddof=1) - 1e-12
        and np.mean(exposed) <= ALPHA + width * np.std(exposed, ddof=1)
        and (case.learnable or proposed <= binom.isf(CHANCE / len(CASES), draws, 0.05))
    )
    line = (
        f"{'holds' if holds else 'FAILS'}  {np.mean(more):+.3f} served (worst {min(more):+.3f})  exposure {np.mean(exposed):.3f}  "
        f"proposed {proposed} of {draws}  {case.says}"
    )
    return line, holds


def main() -> int:
    parser = argparse.ArgumentParser(description="Try to mislead the rule that refuses learned scores.")
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="cases that have these words in their name"
    )
    parser.add_argument("--short", action="store_true", help="a smaller form, for every change")
    options = parser.parse_args()
    draws = 6 if options.short else max(2, options.draws)
    held = True
    for seed, case in enumerate(CASES):
        if options.only not in case.says:
            continue
        line, holds = judged(case, seed, draws)
        print(line, flush=True)
        held &= holds
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
