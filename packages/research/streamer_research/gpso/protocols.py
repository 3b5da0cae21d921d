"""The paper's two ways to test: within a question, and with whole questions left out. Pure.

Two things are judged in both. A *batch* is what the paper judges: held-out responses of one class of one question, of
which the classifier is told that they are of one class. A *response* is a batch of one, what somebody would want to
know of an answer; the paper does not judge these.

Deviation: the paper judges all that is held out, so that batches of the class that a question has more of are larger.
The size alone then distinguishes classes, for what is said of a batch depends on how many rows steady its projector: on
meaningless labels the paper's way scores above chance. Here judged batches are of one size, unless told otherwise.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from streamer_research.gpso.diagnostics import Diagnostics
from streamer_research.gpso.methods import Fitted, Method
from streamer_research.gpso.questions import (
    DEFAULT_MIN_PER_CLASS,
    DEFAULT_TRAIN_SHARE,
    Booleans,
    Places,
    Question,
    leave_out,
    seed_for,
    split_rows,
)
from streamer_research.gpso.scatter import Floats

Protocol = Literal["within", "across"]
Task = Literal["batch", "response"]

DEFAULT_SPLITS = 5
"""The paper's number of splits of each question."""
DEFAULT_FOLDS = 100
"""Groups of questions that are left out together, where there are more questions than this."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """What one method said of everything that was judged, as columns of one length.

    `question` is an index from 0; scores compare within a `fold`, the fitted classifier that
    judged; `score` is positive where the method said good, negative for bad, 0 undecided.
    `diagnostics` are GPSO's, of every batch; empty for other methods and for responses.
    """

    method: str
    protocol: Protocol
    task: Task
    question: Places
    fold: Places
    good: Booleans
    score: Floats
    diagnostics: tuple[Diagnostics, ...] = ()


class _Judged(NamedTuple):
    """One that was judged: a method's place, its task, and the columns of its outcome."""

    method: int
    task: Task
    question: int
    fold: int
    good: bool
    score: float
    diagnostics: Diagnostics | None = None


def judge_within(
    questions: Sequence[Question],
    methods: Sequence[Method],
    *,
    splits: int = DEFAULT_SPLITS,
    train_share: float = DEFAULT_TRAIN_SHARE,
    min_per_class: int = DEFAULT_MIN_PER_CLASS,
    equal_sizes: bool = True,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> list[Outcomes]:
    """Train and test within each question, `splits` >= 1 times ("Within-question (stratified)").

    Questions with fewer than `min_per_class` >= 2 rows of a class are passed over. All methods get
    the same splits, `train_share` of each class's rows, in (0, 1). `equal_sizes`: judge as many
    rows of the larger class, drawn at random, as the smaller one has held out. A question's draws
    depend on the seed and its id, not on what else is there. Returns for each method its outcomes
    on batches, and on responses if it judges one.
    """
    judged: list[_Judged] = []
    for place, question in enumerate(questions):
        if question.has(max(min_per_class, 2)):
            for split in range(splits):
                draw = seed_for(seed, "within", split, question.id)
                train, test = split_rows(question.good, np.random.default_rng(draw), train_share)
                trained, classes = question.rows[train], question.good[train]
                held_out = {side: question.rows[test][question.good[test] == side] for side in (True, False)}
                most = min(map(len, held_out.values())) if equal_sizes else None
                for number, method in enumerate(methods):
                    fitted = method.fit_within(trained[classes], trained[~classes], draw)
                    for good, rows in held_out.items():
                        which = number, place, place * splits + split, good
                        judged += _judge(method, fitted, rows, _some(rows, most, draw), *which)
        if progress is not None:
            progress(place + 1)
    return _all_outcomes(methods, judged, "within")


def judge_across(
    questions: Sequence[Question],
    methods: Sequence[Method],
    *,
    folds: int | None = DEFAULT_FOLDS,
    min_per_class: int = DEFAULT_MIN_PER_CLASS,
    equal_sizes: bool = True,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> list[Outcomes]:
    """Leave questions out: calibrate on the batches of the others, and judge those left out (the
    paper's LOO).

    A class of a question counts, in calibration and in the test, if it has `min_per_class` rows; a
    question with one such class takes part with it. All methods get the same `folds`: that many
    groups of questions, None: one by one. `equal_sizes`: judge `min_per_class` rows of each batch,
    drawn at random; calibration uses all. Returns as `judge_within`; nothing at all where the
    classes of the others do not suffice to fit.
    """
    judged: list[_Judged] = []
    used = {
        (place, good): rows
        for place, question in enumerate(questions)
        for good in (True, False)
        if len(rows := question.of_class(good=good)) >= max(min_per_class, 1)
    }
    prepared = [{key: method.prepare(rows) for key, rows in used.items()} for method in methods]
    done = 0
    groups = leave_out(questions, folds, seed) if len(questions) > 1 else []
    for fold, left in enumerate(groups):
        others = [key for key in used if key[0] not in set(left)]
        mine = [key for key in used if key[0] in set(left)]
        if mine and {good for _, good in others} == {True, False}:
            for number, (method, made) in enumerate(zip(methods, prepared, strict=True)):
                fitted = method.fit_across(
                    [made[key] for key in others if key[1]], [made[key] for key in others if not key[1]]
                )
                for place, good in mine:
                    rows = used[place, good]
                    most = min_per_class if equal_sizes else None
                    some = _some(rows, most, seed_for(seed, "judged", questions[place].id))
                    judged += _judge(method, fitted, rows, some, number, place, fold, good)
        done += len(left)
        if progress is not None:
            progress(done)
    return _all_outcomes(methods, judged, "across")


def _some(rows: Floats, most: int | None, draw: Sequence[int]) -> Floats:
    """Draw `most` rows, all when that is None. Both classes draw from the same seed, so that swapping them changes nothing."""
    if most is None or most >= len(rows):
        return rows
    some: Floats = rows[np.random.default_rng([*draw, 1]).permutation(len(rows))[:most]]
    return some


def _judge(
    method: Method, fitted: Fitted, rows: Floats, judged_together: Floats, *which: Any
) -> Iterator[_Judged]:
    """Judge held-out rows of one class, some of them together, and all one by one if the method can.

    `which`: the method's place, the question's, the fold, and whether they are good.
    """
    number, question, fold, good = which
    together = method.prepare(judged_together)
    found = fitted.diagnose(together, good=good)
    yield _Judged(number, "batch", question, fold, good, fitted.score(together), found)
    for row in rows if method.judges_one else ():
        score = fitted.score(method.prepare(row[np.newaxis]))
        yield _Judged(number, "response", question, fold, good, score)


def _all_outcomes(methods: Sequence[Method], judged: Sequence[_Judged], protocol: Protocol) -> list[Outcomes]:
    found = []
    for number, method in enumerate(methods):
        tasks: tuple[Task, ...] = ("batch", "response") if method.judges_one else ("batch",)
        for task in tasks:
            mine = [one for one in judged if (one.method, one.task) == (number, task)]
            diagnostics = tuple(one.diagnostics for one in mine if one.diagnostics is not None)
            found.append(
                Outcomes(
                    method.name,
                    protocol,
                    task,
                    np.array([one.question for one in mine], dtype=np.intp),
                    np.array([one.fold for one in mine], dtype=np.intp),
                    np.array([one.good for one in mine], dtype=np.bool_),
                    np.array([one.score for one in mine], dtype=np.float64),
                    diagnostics,
                )
            )
    return found
