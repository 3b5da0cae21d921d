"""Do the age cut and the suffix test keep what they promise? Seeded Monte Carlo, and variants that must be caught."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from streamer.recalibration.age_cut import choose
from streamer.recalibration.missing_labels import missing_labels, unlabelled_by
from streamer.recalibration.skill import Separation, level_of, separated
from streamer.recalibration.suffix_test import LEAST_EVIDENCE, evidence, order, suffix_test
from tests.validity.known_risk import repeats

ALPHA = 0.1
DRAWS = 300
REPEATS = repeats(3000)
Z = float(stats.norm.isf(1e-6))
BAD = 0.2  # an answer of score s is bad with chance 2 BAD (1 - s): the exposure at l is BAD (1 - l)^2


def threshold(scores: np.ndarray, losses: np.ndarray) -> float:
    """The conformal threshold for groups of one answer, in [0, 1]."""
    order_of_scores = np.argsort(-scores, kind="stable")
    lost = np.cumsum(losses[order_of_scores])
    limit = ALPHA * (len(scores) + 1) - 1
    if limit < 0:
        return 1.0
    over = np.flatnonzero(lost > limit + 1e-9)
    return float(scores[order_of_scores][over[0]]) if len(over) else 0.0


def exposures(how: str, *, slow: float) -> np.ndarray:
    """Exposure of each repetition; labels of bad answers come `slow` times as late as those of good ones."""
    rng = np.random.default_rng([20261122, round(10 * slow)])
    span, mean = 1500.0, 120.0
    found = []
    for _ in range(REPEATS):
        scores, earlier_bad = rng.random(DRAWS), rng.random(100) < BAD
        losses = (rng.random(DRAWS) < 2 * BAD * (1 - scores)).astype(float)
        ages = np.sort(rng.random(DRAWS))[::-1] * span
        waits = rng.exponential(np.where(losses > 0, slow, 1.0) * mean) > ages
        earlier = rng.exponential(np.where(earlier_bad, slow, 1.0) * mean)
        counted = np.where(waits, 1.0, losses)
        if how == "age":
            cut = choose(
                ages.tolist(), waits.tolist(), pending="age", earlier=earlier.tolist(),
                label_deadline=0, deadline=5000,
            )  # fmt: skip
            kept = ages >= cut.seconds
            assert kept.sum() >= DRAWS / 2
            level = threshold(scores[kept], counted[kept])
        elif how == "labelled only":
            level = threshold(scores[~waits], losses[~waits])
        else:
            cuts = np.quantile(ages, [0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
            level = min(threshold(scores[ages >= one], counted[ages >= one]) for one in cuts)
        found.append(BAD * (1 - level) ** 2)
    return np.array(found)


def within_budget(found: np.ndarray) -> bool:
    return bool(found.mean() <= ALPHA + Z * found.std(ddof=1) / np.sqrt(len(found)))


@pytest.mark.parametrize("slow", [1.0, 8.0, 100.0])
def test_the_age_cut_keeps_the_budget_whenever_bad_answers_get_their_labels(slow: float) -> None:
    assert within_budget(exposures("age", slow=slow))


@pytest.mark.parametrize("how", ["labelled only", "best of several cuts"])
def test_other_ways_to_treat_missing_labels_are_caught(how: str) -> None:
    assert not within_budget(exposures(how, slow=8.0))


def test_the_age_cut_knows_nothing_of_severities_and_leaves_half() -> None:
    ages = [400.0, 300.0, 200.0, 100.0]
    some = [False, False, True, True]
    earlier = [float(n) for n in range(1, 101)]

    def cut(waits: list[bool], earlier: list[float | None], **more: float) -> float:
        usual: dict[str, Any] = {"label_deadline": 0.0, "deadline": 1000.0}
        return choose(ages, waits, pending="age", earlier=earlier, **(usual | more)).seconds

    assert cut(some, list(earlier)) == 95.0
    found = cut(some, [*earlier, None, None, None, None, None, None, None])
    assert found == 300.0, "never labelled: the deadline"
    assert cut(some, []) == 300.0, "no earlier draws: the age of the middle draw"
    assert cut(some, [], deadline=150.0) == 150.0
    assert cut([False] * 4, []) == 0.0, "nothing waits: everything is read"
    assert cut([False] * 4, [], label_deadline=50.0) == 50.0


def test_a_suffix_test_seldom_cuts_in_a_stable_stream() -> None:
    rng = np.random.default_rng(20261122)
    streams, right, one_sided = 1000, 0, 0
    for n in range(streams):
        losses = (rng.random(100) < ALPHA).astype(float)
        found = suffix_test(losses, order(n, [f"b{i}#1" for i in range(100)]), version=1)
        right += found.cuts
        # Wrong on purpose: pairs in which the older group is worse are left out.
        one_sided += evidence(found.worse, found.worse) >= LEAST_EVIDENCE
    bound = stats.binom.isf(1e-6, streams, 1 / LEAST_EVIDENCE)
    assert right <= bound < one_sided


def test_a_suffix_test_sees_a_jump_before_the_whole_history_does() -> None:
    rng = np.random.default_rng(7)
    seen = []
    for n in range(100):
        losses = (rng.random(600) < np.where(np.arange(600) < 400, 0.07, 0.5)).astype(float)
        drawn = order(n, [f"b{i}#1" for i in range(600)])
        seen.append(
            next(
                count - 400
                for count in range(400, 601, 10)
                if (found := suffix_test(losses[:count], drawn[:count], version=1)) is not None and found.cuts
            )
        )
    assert np.median(seen) <= 40


def test_the_evidence_is_an_e_value_under_every_number_of_pairs() -> None:
    for pairs in (1, 5, 30, 200):
        chances = stats.binom.pmf(np.arange(pairs + 1), pairs, 0.5)
        mean = sum(chance * evidence(k, pairs) for k, chance in enumerate(chances))
        assert mean == pytest.approx(1, rel=1e-9)


def test_labels_missing_at_random_raise_nothing_and_those_missing_at_low_scores_do() -> None:
    rng = np.random.default_rng(11)
    false = looked = 0
    bound = stats.binom.isf(1e-6, 300, 0.01)
    for _ in range(300):
        scores, missing = rng.random(1000), rng.random(1000) < 0.1
        false += missing_labels(zip(scores.tolist(), missing.tolist(), strict=True)).not_at_random
        # Wrong on purpose: a test at 1 % after every twenty draws. Once it is caught, the rest would show no more.
        looked += looked <= bound and any(
            stats.mannwhitneyu(scores[:n][missing[:n]], scores[:n][~missing[:n]]).pvalue <= 0.01
            for n in range(100, 1001, 20)
        )
    assert false <= bound
    assert looked > bound
    scores = rng.random(3000)
    found = missing_labels(
        zip(scores.tolist(), (rng.random(3000) < 0.2 * (1 - scores)).tolist(), strict=True)
    )
    assert found.not_at_random
    assert "low scores" in found.said


def test_a_labeller_who_leaves_answers_is_named_and_a_test_of_each_at_the_full_level_is_caught() -> None:
    rng = np.random.default_rng(12)
    streams, people, named, each = 150, 12, 0, 0
    bound = stats.binom.isf(1e-6, streams, 0.05)
    for _ in range(streams):
        shown = [
            (f"p{who}", bool(missing))
            for who, missing in zip(rng.integers(people, size=1500), rng.random(1500) < 0.3, strict=True)
        ]
        named += unlabelled_by(shown) is not None
        # Wrong on purpose: nobody pays for how many are tested. Once it is caught, the rest would show no more.
        each += each <= bound and any(
            missing_labels((float(who != f"p{one}"), missing) for who, missing in shown).evidence >= 20
            for one in range(people)
        )
    assert named <= stats.binom.isf(1e-6, streams, 0.01)
    assert each > bound
    shown = [
        (name, bool(rng.random() < chance))
        for name, chance in zip(["ana", "ben", "eve"] * 300, [0.02, 0.02, 0.5] * 300, strict=True)
    ]
    assert unlabelled_by(shown)[0] == "eve"


def first_opening(
    rng: np.random.Generator, skill: float, passes: Callable[[Separation], bool], **shape: int
) -> int | None:
    """Labels at the first of a closed gate's runs that passes: a run each 50 labels, all those of a sample read again.

    Every answer is bad with chance .3 on average; of skill 0 the score says nothing of it.
    """
    runs, samples, window = shape.get("runs", 20), shape.get("samples", 1), shape.get("window")
    for alarms in range(samples):
        scores = rng.random(50 * runs)
        losses = (rng.random(50 * runs) < 0.3 * (1 + skill * (1 - 2 * scores))).astype(float)
        for drawn in range(50, 50 * runs + 1, 50):
            read = slice(max(0, drawn - window) if window else 0, drawn)
            ships = (scores[read] > threshold(scores[read], losses[read])).astype(float)
            cut = choose(
                [0.0] * drawn, [False] * drawn, pending="age", earlier=[], label_deadline=0, deadline=1
            )
            cut = replace(cut, window=window)
            found = separated(ships, losses[read], [1] * len(ships), level=level_of(alarms, cut))
            if found is not None and passes(found):
                return alarms * 50 * runs + drawn
    return None


LIVES = [{"runs": 20}, {"runs": 6, "samples": 5}, {"runs": 40, "window": 200}]


@pytest.mark.parametrize("shape", LIVES, ids=["one sample", "five samples", "window"])
def test_a_score_without_skill_opens_no_gate_however_often_it_is_asked(shape: dict[str, int]) -> None:
    rng, gates = np.random.default_rng(13), repeats(400, part=2)
    opened = sum(first_opening(rng, 0.0, lambda one: one.shown, **shape) is not None for _ in range(gates))
    bound = stats.binom.isf(1e-6, gates, 0.05)
    assert opened <= bound
    # Wrong on purpose: a test at 5 % of each run. Once it is caught, the rest would show no more.
    level, anew = stats.norm.isf(0.05), 0
    for _ in range(gates):
        anew += anew <= bound and first_opening(rng, 0.0, lambda one: one.z > level, **shape) is not None
    assert anew > bound


def test_a_useful_score_opens_after_a_few_hundred_labels() -> None:
    rng = np.random.default_rng(14)
    for skill, most in ((0.9, 300), (0.5, 600)):
        found = [first_opening(rng, skill, lambda one: one.shown) for _ in range(100)]
        assert np.median([np.inf if one is None else one for one in found]) <= most
