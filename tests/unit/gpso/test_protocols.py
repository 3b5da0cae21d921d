"""Splits and protocols: what is held out never reaches what judges it, and draws depend on nothing but ids."""

import numpy as np
import pytest

from streamer_research.gpso import (
    PIPELINES,
    Gpso,
    NearestMean,
    Question,
    Tightness,
    judge_across,
    judge_within,
)
from streamer_research.gpso.logistic import LogisticRegression
from streamer_research.gpso.questions import leave_out, seed_for, split_rows

DIMENSIONS = 16
METHODS = [
    *(Gpso(pipeline) for pipeline in PIPELINES.values()),
    LogisticRegression(),
    NearestMean(),
    Tightness(),
]


def question(name: str, rng: np.random.Generator, good: int = 6, bad: int = 5) -> Question:
    rows = rng.normal(size=(good + bad, DIMENSIONS)) + 1.0
    rows[:good, 0] += 2.0
    classes = np.arange(good + bad) < good
    order = rng.permutation(good + bad)
    return Question(name, rows[order], classes[order])


def questions(count: int = 6, seed: int = 1) -> list[Question]:
    rng = np.random.default_rng(seed)
    return [question(f"q{i}", rng) for i in range(count)]


@pytest.mark.parametrize(("m", "kept"), [(2, 1), (3, 2), (4, 2), (5, 3), (6, 4), (10, 6)])
def test_sixty_of_a_hundred_of_each_class_are_trained_on(m, kept):
    good = np.repeat([True, False], [m, 10])
    train, test = split_rows(good, np.random.default_rng(0))
    assert (good[train].sum(), good[test].sum()) == (kept, m - kept)
    assert ((~good)[train].sum(), (~good)[test].sum()) == (6, 4)
    assert sorted([*train, *test]) == list(range(m + 10))


def test_a_share_so_small_or_large_still_leaves_one_on_each_side():
    good = np.repeat([True, False], 3)
    for share, kept in ((0.01, 1), (0.99, 2)):
        train, _ = split_rows(good, np.random.default_rng(0), share)
        assert good[train].sum() == kept


@pytest.mark.parametrize(("good", "share"), [([True, False, False], 0.6), ([True, True], 0.6)])
def test_a_class_that_cannot_be_split_is_refused(good, share):
    with pytest.raises(ValueError, match="cannot be split"):
        split_rows(np.array(good), np.random.default_rng(0), share)


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, 2.0])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match="between 0 and 1"):
        split_rows(np.repeat([True, False], 3), np.random.default_rng(0), share)


def test_every_row_is_held_out_about_as_often_as_any_other():
    good = np.repeat([True, False], [5, 5])
    held = np.zeros(10)
    rounds = 4000
    for i in range(rounds):
        held[split_rows(good, np.random.default_rng(seed_for(i)))[1]] += 1
    # Each with chance 2/5, independently over rounds: 5.2 standard deviations is a chance of 1e-6 for ten rows.
    assert np.abs(held / rounds - 0.4).max() < 5.2 * np.sqrt(0.4 * 0.6 / rounds)


def test_folds_leave_each_question_out_once_and_do_not_depend_on_order():
    some = questions(23)
    folds = leave_out(some, 5, seed=3)
    assert sorted(place for fold in folds for place in fold) == list(range(23))
    assert sorted(map(len, folds)) == [4, 4, 5, 5, 5]
    back = some[::-1]
    named = {frozenset(some[i].id for i in fold) for fold in folds}
    assert named == {frozenset(back[i].id for i in fold) for fold in leave_out(back, 5, seed=3)}
    assert named != {frozenset(some[i].id for i in fold) for fold in leave_out(some, 5, seed=4)}
    assert [len(fold) for fold in leave_out(some, None, seed=0)] == [1] * 23
    assert len(leave_out(some, 100, seed=0)) == 23


@pytest.mark.parametrize(("count", "folds"), [(1, None), (5, 1)])
def test_folds_that_leave_nothing_to_calibrate_on_are_refused(count, folds):
    with pytest.raises(ValueError, match="at least 2"):
        leave_out(questions(count), folds, seed=0)


class Recording:
    """A method that writes down what it was fitted on and judged, and decides by that."""

    name = "recording"
    judges_one = True

    def __init__(self) -> None:
        self.fitted: list[tuple[np.ndarray, np.ndarray]] = []
        self.judged: list[tuple[int, np.ndarray]] = []

    def prepare(self, rows):
        return rows

    def fit_within(self, good, bad, seed):
        return self.fit_across([good], [bad])

    def fit_across(self, good, bad):
        self.fitted.append((np.vstack(good), np.vstack(bad)))
        return self

    def score(self, prepared):
        self.judged.append((len(self.fitted) - 1, prepared))
        return 1.0

    def diagnose(self, prepared, *, good):
        return None


def as_set(rows: np.ndarray) -> set[bytes]:
    return {row.tobytes() for row in rows}


@pytest.mark.parametrize("across", [False, True])
def test_no_row_is_both_trained_on_and_judged(across):
    recording = Recording()
    some = questions()
    judge = judge_across if across else judge_within
    judge(some, [recording])
    assert recording.judged
    for fit, rows in recording.judged:
        good, bad = recording.fitted[fit]
        assert not as_set(rows) & (as_set(good) | as_set(bad))
        if across:
            (owner,) = [one for one in some if as_set(rows) <= as_set(one.rows)]
            assert not as_set(owner.rows) & (as_set(good) | as_set(bad))
    if across:
        held_out = set().union(*(as_set(rows) for _, rows in recording.judged))
        assert held_out == set().union(*(as_set(one.rows) for one in some))


class Watching(Gpso):
    """GPSO that shows what it was fitted to."""

    seen: list  # of every instance: the class is frozen

    def fit_within(self, good, bad, seed):
        fitted = super().fit_within(good, bad, seed)
        type(self).seen.append(fitted.classifier)
        return fitted

    def fit_across(self, good, bad):
        fitted = super().fit_across(good, bad)
        type(self).seen.append(fitted.classifier)
        return fitted


def state(classifier) -> tuple[bytes, ...]:
    return tuple(
        part.tobytes()
        for prototype in (classifier.good, classifier.bad)
        for part in (
            prototype.directions,
            prototype.mean.values,
            np.array([classifier.rank, prototype.dispersion, prototype.eigengap]),
        )
    )


@pytest.mark.parametrize("key", list(PIPELINES))
def test_changing_the_rows_held_out_changes_no_bit_of_what_judges_them(key):
    one = questions(1)[0]
    seed = seed_for(0, "within", 0, one.id)
    _, test = split_rows(one.good, np.random.default_rng(seed))
    changed = one.rows.copy()
    changed[test] = 100 * np.random.default_rng(9).normal(size=changed[test].shape)
    found = []
    for rows in (one.rows, changed):
        Watching.seen = []
        judge_within([Question(one.id, rows, one.good)], [Watching(PIPELINES[key])], splits=1)
        found.append([state(classifier) for classifier in Watching.seen])
    assert len(found[0]) == 1
    assert found[0] == found[1]
    # The test can fail: a training row does matter.
    changed[np.setdiff1d(np.arange(len(changed)), test)[0]] += 1.0
    Watching.seen = []
    judge_within([Question(one.id, changed, one.good)], [Watching(PIPELINES[key])], splits=1)
    assert [state(classifier) for classifier in Watching.seen] != found[0]


@pytest.mark.parametrize("key", list(PIPELINES))
@pytest.mark.parametrize("folds", [None, 2])
def test_changing_a_question_left_out_changes_no_bit_of_what_judges_it(key, folds):
    some = questions(5)
    place = next(i for i, fold in enumerate(leave_out(some, folds, 0)) if 2 in fold)
    moved = list(some)
    moved[2] = Question(some[2].id, some[2].rows[::-1] * 3 - 1, some[2].good)
    found = []
    for each in (some, moved):
        Watching.seen = []
        judge_across(each, [Watching(PIPELINES[key])], folds=folds)
        found.append([state(classifier) for classifier in Watching.seen])
    assert found[0][place] == found[1][place]
    assert all(one != other for i, (one, other) in enumerate(zip(*found, strict=True)) if i != place)


def test_every_method_judges_the_same_things():
    found = judge_within(questions(), METHODS, splits=3) + judge_across(questions(), METHODS, folds=3)
    assert {(one.protocol, one.task, one.method) for one in found} == {
        (protocol, task, method.name)
        for protocol in ("within", "across")
        for task in ("batch", "response")
        for method in METHODS
        if task == "batch" or method.judges_one
    }
    for protocol in ("within", "across"):
        for task in ("batch", "response"):
            same = [one for one in found if (one.protocol, one.task) == (protocol, task)]
            for one in same[1:]:
                assert (one.question == same[0].question).all()
                assert (one.fold == same[0].fold).all()
                assert (one.good == same[0].good).all()
    batches = next(one for one in found if (one.protocol, one.task) == ("within", "batch"))
    assert len(batches.score) == 6 * 3 * 2
    assert len(batches.diagnostics) == len(batches.score)


@pytest.mark.parametrize("across", [False, True])
def test_judged_batches_are_of_one_size(across):
    rng = np.random.default_rng(6)
    some = [question(f"q{i}", rng, good=4 + i, bad=9 - i) for i in range(5)]
    judge = judge_across if across else judge_within
    for equal in (True, False):
        recording = Recording()
        batches, responses = judge(some, [recording], equal_sizes=equal)
        together = [len(rows) for _, rows in recording.judged if len(rows) > 1]
        if not equal:
            assert len(set(together)) > 1
        elif across:
            assert set(together) == {3}
        else:
            assert together[::2] == together[1::2]  # good and bad of each split
        # One by one everything that is held out is judged, either way.
        assert len(responses.score) == (5 * 13 if across else 5 * (5 + 5 + 6 + 5 + 5))
    assert len(batches.score) == (10 if across else 50)


def test_tightness_is_the_mean_squared_deviation_of_unit_rows():
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(6, DIMENSIONS))
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    tight, wide = Tightness().prepare(np.ones((4, 3)) + [[0, 0, 0.1]] * 4), Tightness().prepare(rows)
    assert tight == 0
    assert wide == pytest.approx(np.square(units - units.mean(axis=0)).sum(axis=1).sum() / 5)
    fitted = Tightness().fit_across([0.1, 0.2], [0.5, 0.6])
    assert [np.sign(fitted.score(x)) for x in (0.0, 0.34, 0.36, 1.0)] == [1, 1, -1, -1]
    assert fitted.score(0.0) > fitted.score(0.1)  # beyond the mean the order goes on
    assert Tightness().fit_across([0.5], [0.5]).score(0.1) == 0
    assert fitted.score(Tightness().prepare(rows[:1])) == 0  # one row has no deviation


def test_questions_come_out_alike_whatever_else_is_in_the_file():
    some = questions()
    alone = judge_within(some[3:4], [Gpso(PIPELINES["B"])])[0]
    together = judge_within(some, [Gpso(PIPELINES["B"])])[0]
    assert (together.score[together.question == 3] == alone.score).all()


def test_too_few_of_a_class_are_passed_over():
    rng = np.random.default_rng(3)
    some = [
        question("few good", rng, good=2),
        question("few bad", rng, bad=2),
        question("enough", rng, good=3),
    ]
    within = judge_within(some, [NearestMean()])
    assert set(within[0].question) == {2}
    # Across questions the other class of such a question takes part.
    across = judge_across(some, [NearestMean()])[0]
    wanted = {(0, False), (1, True), (2, True), (2, False)}
    assert {(int(q), bool(g)) for q, g in zip(across.question, across.good, strict=True)} == wanted


def test_nothing_to_calibrate_on_leaves_nothing_judged():
    rng = np.random.default_rng(4)
    one_class = [Question(f"q{i}", rng.normal(size=(4, 3)), np.ones(4, dtype=bool)) for i in range(3)]
    assert all(len(one.score) == 0 for one in judge_across(one_class, METHODS))
    assert all(len(one.score) == 0 for one in judge_across(questions(1), METHODS))
    assert all(len(one.score) == 0 for one in judge_within(one_class, METHODS))


def test_progress_comes_to_the_number_of_questions():
    for judge in (judge_within, judge_across):
        told: list[int] = []
        judge(questions(), [NearestMean()], progress=told.append)
        assert told[-1] == 6
        assert told == sorted(told)
