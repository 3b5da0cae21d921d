"""What holds for every scorer, whatever the answers: the contract that `streamer scorer check` tests.

Whoever scores a batch today and derives the score again in a year must get the same one, on another machine, in another
process, after other batches.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.scorer import AnswerBatch, Scorer

Floats = NDArray[np.float64]

TOLERANCE = 1.5e-6
"""Sums in another order may round the seventh digit to the other side."""

_WORDS = (
    "", " ", "\u200b", "Paris", "paris.", "Lyon", "The answer is Paris.", "não sei 🤷", "Final: 42", "0", "x" * 3000,
    "Paris, because it is the capital. " * 40,
)  # fmt: skip
_BATCHES = 60
_DIMENSION = 8
_READ = frozenset(
    {"texts", "forms", "embeddings", "blank", "models", "not_read", "embedded", "unit_rows", "form", "wholes"}
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One part of the contract, and how it is broken; None: it holds."""

    part: str
    broken: str | None


class _Watched(AnswerBatch):
    """A batch that notes what else is asked of it: a scorer has nothing but answers, and no label."""

    asked: set[str]

    def __getattribute__(self, name: str) -> object:
        if not name.startswith("_") and name not in _READ and name != "asked":
            object.__getattribute__(self, "__dict__")["asked"].add(name)
        return super().__getattribute__(name)


def sample_batches(seed: int = 7) -> list[AnswerBatch]:
    """Return batches with copies, blank and long answers, other scripts, and directions that are equal, opposite and tiny."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(_BATCHES):
        n = int(rng.integers(2, 12)) if number else 2
        texts = [_WORDS[int(i)] for i in rng.integers(0, len(_WORDS), n)]
        rows = rng.choice([-1.0, 0.0, 0.3, 1.0], size=(n, _DIMENSION))
        if number % 2:
            rows = rng.normal(size=(n, _DIMENSION)) * 10.0 ** rng.integers(-6, 6, size=(n, 1))
        rows[~rows.any(axis=1), 0] = 1.0
        blank = [not text.strip(" \u200b") for text in texts]
        forms = [
            "" if empty else re.sub(r"\W+", " ", text.casefold()).strip()
            for text, empty in zip(texts, blank, strict=True)
        ]
        made.append(AnswerBatch(texts, forms, rows, blank))
    made.append(AnswerBatch([" ", ""], ["", ""], np.ones((2, _DIMENSION)), [True, True]))
    made.append(AnswerBatch(["Paris"] * 40, ["paris"] * 40, np.ones((40, _DIMENSION)), [False] * 40))
    return made


def check(make: Callable[[], Scorer]) -> Iterator[Finding]:
    """Test a scorer, made several times, against every part of the contract, one finding each."""
    for part, test in _PARTS:
        try:
            test(make)
        except Exception as error:
            yield Finding(
                part, str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            )
        else:
            yield Finding(part, None)


def scores_of(scorer: Scorer) -> list[list[float]]:
    """Return what a scorer makes of `sample_batches`: the same in every process."""
    return [np.asarray(scorer.score(batch), dtype=np.float64).tolist() for batch in sample_batches()]


def _says_what_it_is(make: Callable[[], Scorer]) -> None:
    scorer = make()
    for name in ("name", "title", "says"):
        text = getattr(scorer, name, None)
        _hold(isinstance(text, str) and text.strip(), f"it has no {name}")
    _hold(
        re.fullmatch(r"[a-z][a-z0-9-]{0,45}", scorer.name),
        f"its name is {scorer.name!r}, not 1 to 46 of a-z, 0-9 and '-', the first a letter",
    )


def _scores_lie_in_range(make: Callable[[], Scorer]) -> None:
    scorer = make()
    for batch in sample_batches():
        scores = scorer.score(batch)
        n = len(batch.texts)
        _hold(
            isinstance(scores, np.ndarray) and scores.dtype == np.float64,
            f"it returns {type(scores).__name__}, not an array of float64",
        )
        _hold(scores.shape == (n,), f"{n} answers have scores of the shape {scores.shape}")
        _hold(np.isfinite(scores).all(), f"a score of {n} answers is not finite")
        _hold(
            ((scores >= 0) & (scores <= 1)).all(),
            f"a score is {scores.min():g} or {scores.max():g}, not in [0, 1]",
        )
        _hold((scores == np.round(scores, 6)).all(), "scores are not rounded to 1e-6: `finished` does that")


def _blank_answers_score_nothing(make: Callable[[], Scorer]) -> None:
    scorer = make()
    for batch in sample_batches():
        _hold(
            (scorer.score(batch)[np.asarray(batch.blank, dtype=np.bool_)] == 0).all(),
            "a blank answer scores more than 0: `finished` takes the marks",
        )


def _the_same_twice(make: Callable[[], Scorer]) -> None:
    first, second = make(), make()
    for batch in sample_batches():
        found = [one.score(batch).tolist() for one in (first, first, second)]
        _hold(found[0] == found[1], "the same batch scores otherwise the second time")
        _hold(found[0] == found[2], "another instance scores the same batch otherwise")


def _neighbours_change_nothing(make: Callable[[], Scorer]) -> None:
    batches = sample_batches()
    alone = [make().score(batch).tolist() for batch in batches]
    scorer = make()
    backwards = [scorer.score(batch).tolist() for batch in reversed(batches)]
    _hold(
        alone == backwards[::-1],
        "a batch scores otherwise after other batches than alone, in the last bit at least",
    )


def _order_does_not_matter(make: Callable[[], Scorer]) -> None:
    scorer, rng = make(), np.random.default_rng(11)
    for batch in sample_batches():
        order = rng.permutation(len(batch.texts))
        other = AnswerBatch(
            [batch.texts[i] for i in order],
            [batch.forms[i] for i in order],
            batch.embeddings[order],
            [batch.blank[i] for i in order],
            [batch.models[i] for i in order if batch.models],
        )
        worst = np.abs(scorer.score(other) - scorer.score(batch)[order]).max()
        _hold(worst <= TOLERANCE, f"answers in another order score otherwise, by {worst:.6f}")


def _batches_are_left_alone(make: Callable[[], Scorer]) -> None:
    scorer = make()
    for batch in sample_batches():
        before = (list(batch.texts), list(batch.forms), batch.embeddings.tobytes(), list(batch.blank))
        scorer.score(batch)
        after = (list(batch.texts), list(batch.forms), batch.embeddings.tobytes(), list(batch.blank))
        _hold(before == after, "it changes the batch that it scores")


def _sees_answers_alone(make: Callable[[], Scorer]) -> None:
    scorer = make()
    needed = [
        one.name
        for one in inspect.signature(scorer.score).parameters.values()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    _hold(
        len(needed) == 1,
        f"`score` must take the batch alone, not {', '.join(needed) or 'nothing'}: there is no label in service",
    )
    for batch in sample_batches()[:5]:
        watched = object.__new__(_Watched)
        object.__setattr__(watched, "asked", set())
        for name in ("texts", "forms", "embeddings", "blank", "models", "not_read", "form", "wholes"):
            object.__setattr__(watched, name, getattr(batch, name))
        asked: set[str] = watched.asked
        try:
            scorer.score(watched)
        finally:
            _hold(
                not asked, f"it asks the batch for {', '.join(sorted(asked))}, which no batch has in service"
            )


def _hold(condition: object, broken: str) -> None:
    if not bool(condition):
        raise AssertionError(broken)


_PARTS: tuple[tuple[str, Callable[[Callable[[], Scorer]], None]], ...] = (
    ("says what it is", _says_what_it_is),
    ("one finite score in [0, 1] for each answer, float64, rounded to 1e-6", _scores_lie_in_range),
    ("a blank answer scores 0", _blank_answers_score_nothing),
    ("the same batch scores the same", _the_same_twice),
    ("other batches change nothing", _neighbours_change_nothing),
    ("the order of the answers does not matter", _order_does_not_matter),
    ("it leaves the batch as it is", _batches_are_left_alone),
    ("it sees answers alone, and no label", _sees_answers_alone),
)
