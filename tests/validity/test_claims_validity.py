"""Do the losses of claims keep to their budgets? On any prompts, and controls that must fail.

Of G + 1 prompts each is as likely as any other to be the fresh one. So the promise is about the
mean, over all of them, of what one loses at the threshold of the G others: a number without error.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer import LabelledGroup
from streamer.calibration.claims import LOSSES, calibrate_claims, claim_loss, shipped_claims
from streamer.calibration.registry import calibrator
from streamer.calibration.specification import Sample
from streamer.gates.settings import GateSettings
from streamer.scoring.claims.support import features
from streamer.scoring.registry import EVERY
from tests.validity.known_risk import most_violations

ALL = tuple(name.replace("C", "2") for name in LOSSES)
Calibrated = Callable[[Sequence[LabelledGroup], float], float]
Cut = Callable[[Sequence[LabelledGroup]], float]


@st.composite
def bags(draw: st.DrawFn) -> list[LabelledGroup]:
    """Up to 12 prompts whose claims tie often, and depend on one another in any way."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=12))
    share = st.integers(0, 4).map(lambda fourths: fourths / 4)
    return [
        group(str(i), *(draw(st.lists(share, min_size=size, max_size=size)) for _ in range(2)))
        for i, size in enumerate(sizes)
    ]


def group(name: str, scores: Sequence[float], severities: Sequence[float]) -> LabelledGroup:
    ids = tuple(f"c{i}" for i in range(len(scores)))
    return LabelledGroup(name, ids, np.array(scores), np.array(severities))


def risk(bag: Sequence[LabelledGroup], loss: str, cut: Cut, least: float = 0.0) -> float:
    """The mean loss of each prompt at the threshold of the others."""
    lost, kind = [], claim_loss(loss)
    for place, fresh in enumerate(bag):
        value = cut([*bag[:place], *bag[place + 1 :]])
        lost.append(kind.at(fresh.severities, shipped_claims(fresh.scores, value, least_kept=least)))
    return float(np.mean(lost))


@pytest.mark.parametrize("loss", ALL)
@given(bag=bags(), alpha=st.sampled_from((0.1, 0.25, 0.5)), least=st.sampled_from((0.0, 0.4, 1.0)))
def test_no_bag_breaks_the_budget(loss: str, bag: Any, alpha: float, least: float) -> None:
    def cut(others: Sequence[LabelledGroup]) -> float:
        return calibrate_claims(others, alpha=alpha, loss=loss, least_kept=least).value

    assert risk(bag, loss, cut, least) <= alpha + 1e-9


@given(bag=bags(), alpha=st.sampled_from((0.1, 0.25, 0.5)), least=st.sampled_from((0.0, 0.4, 1.0)))
def test_labels_from_the_top_to_the_first_wrong_claim_are_enough(
    bag: list[LabelledGroup], alpha: float, least: float
) -> None:
    """What is not asked for counts as wrong, and no threshold changes; with other losses all is asked for."""
    for loss in ALL:
        gate = GateSettings(unit="claim", scorer="support", encoder="none", loss=loss)
        asked = []
        for one in bag:
            known = list(zip(one.scores, one.severities, strict=True))
            needs = one.scores > gate.asked_above(known)
            assert loss == "any" or needs.all()
            severities = np.where(needs, one.severities, 1.0)
            asked.append(group(one.id, one.scores.tolist(), severities.tolist()))
        both = (calibrate_claims(some, alpha=alpha, loss=loss, least_kept=least) for some in (bag, asked))
        assert next(both) == next(both)


def world(seed: int, prompts: int = 41) -> list[LabelledGroup]:
    """Prompts of 1 or 20 claims, 21 levels of score; on hard ones more are wrong at each score."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(prompts):
        size = 20 if rng.random() < 0.5 else 1
        scores = np.round(rng.random(size) * 20) / 20
        wrong = rng.random(size) < rng.random() * 0.6 * (1.1 - scores)
        made.append(group(str(i), scores.tolist(), wrong.astype(float).tolist()))
    return made


def right(groups: Sequence[LabelledGroup], alpha: float) -> float:
    return calibrate_claims(groups, alpha=alpha).value


def claims_as_units(groups: Sequence[LabelledGroup], alpha: float) -> float:
    single = [
        group(f"{one.id} {i}", [score], [severity])
        for one in groups
        for i, (score, severity) in enumerate(zip(one.scores, one.severities, strict=True))
    ]
    return calibrate_claims(single, alpha=alpha).value


def one_labelled(groups: Sequence[LabelledGroup], alpha: float) -> float:
    drawn = np.random.default_rng(0)
    single = []
    for one in groups:
        i = int(drawn.integers(len(one.item_ids)))
        single.append(group(one.id, [one.scores[i]], [one.severities[i]]))
    return calibrate_claims(single, alpha=alpha).value


def ties_ship(groups: Sequence[LabelledGroup], alpha: float) -> float:
    """As `S >= lambda` does: claims at the threshold ship as well."""
    return float(np.nextafter(calibrate_claims(groups, alpha=alpha).value, -np.inf))


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2])
def test_wrong_ways_to_calibrate_break_the_budget(alpha: float) -> None:
    def mean(way: Calibrated, worlds: int) -> float:
        found = [risk(world(seed), "any", lambda some: way(some, alpha)) for seed in range(worlds)]
        return float(np.mean(found))

    assert 0.5 * alpha < mean(right, 8) <= alpha
    assert mean(ties_ship, 8) > alpha
    assert mean(claims_as_units, 1) > 2 * alpha
    assert mean(one_labelled, 8) > 2 * alpha


METHODS: dict[str, Any] = {"mean": {}, "age": {"rho": 0.9}, "hb": {}, "betting": {}, "bernstein": {}}


@pytest.mark.parametrize("method", METHODS)
def test_with_severities_of_0_and_1_a_prompt_is_one_item_of_the_loss_any(method: str) -> None:
    """Its score is the highest of a wrong claim: any method finds what it finds on such items."""
    by, opened = calibrator(method, METHODS[method]), 0
    for seed in range(20):
        groups = world(seed, 60)
        tops = [one.scores[one.severities == 1] for one in groups]
        single = [
            group(one.id, [max(top, default=0.0)], [float(len(top) > 0)])
            for one, top in zip(groups, tops, strict=True)
        ]
        wanted = by.calibrate(Sample(groups=single, alpha=0.4, seed=seed)).threshold
        found = calibrate_claims(groups, alpha=0.4, by=by, seed=seed)
        assert (found.value, found.groups, found.method) == (wanted.value, 60, method)
        assert "a wrong claim is at most 40 %" in found.guarantee
        assert "item" not in found.guarantee
        opened += found.state == "cut"
    assert opened


@pytest.mark.parametrize(
    ("loss", "alpha"), [("any", 0.3), ("share", 0.15), ("mass:2", 0.3), ("wrong-among", 0.1)]
)
def test_bounds_with_high_probability_hold_as_often_as_they_say(loss: str, alpha: float) -> None:
    """Counted over calibrations, against the binomial bound at 1e-6; the bound on average is none."""
    repeats, delta, many = 100, 0.1, world(999_999, 8000)
    steps = list(map(claim_loss(loss).steps, many))
    scores, rises = (
        np.concatenate([getattr(one, name) for one in steps]) for name in ("scores", "severities")
    )
    broken = dict.fromkeys(("mean", "hb", "betting", "bernstein"), 0)
    for seed in range(repeats):
        groups = world(seed, 60)
        for method in broken:
            value = calibrate_claims(groups, alpha=alpha, loss=loss, by=calibrator(method), seed=seed).value
            broken[method] += rises[scores > value].sum() > alpha * len(many)
    most = most_violations(repeats, delta)
    assert broken.pop("mean") > most >= max(broken.values())


@given(bag=bags())
def test_the_plain_rule_finds_the_same_threshold(bag: list[LabelledGroup]) -> None:
    """Try every threshold, the lowest first, by the definition of each loss."""
    levels = sorted({score for one in bag for score in one.scores.tolist()})

    def loss(one: LabelledGroup, kind: str, cut: float) -> float:
        out = one.severities[one.scores > cut].tolist()
        if kind == "wrong-among":
            above = [one.severities[one.scores > level] for level in (cut, *levels) if level >= cut]
            return max((float(some.mean()) for some in above if len(some)), default=0.0)
        whole = {
            "any": max(out, default=0.0),
            "share": sum(out) / len(one.scores),
            "mass:2": min(1.0, sum(out) / 2),
        }
        return whole[kind]

    for kind in ALL:
        limit = 0.3 * (len(bag) + 1) - 1
        total = {cut: sum(loss(one, kind, cut) for one in bag) for cut in (-np.inf, *levels)}
        allowed = [cut for cut, lost in total.items() if lost <= limit + 1e-9]
        wanted = min(allowed, default=np.inf) if limit >= 0 else np.inf
        assert calibrate_claims(bag, alpha=0.3, loss=kind).value == wanted


def said(seed: int, prompts: int = 25) -> list[tuple[list[str], list[str], list[float]]]:
    """Claims, the other answers, and severities that have nothing to do with the two."""
    rng = np.random.default_rng(seed)

    def some(most: int) -> list[str]:
        drawn = rng.integers(0, 9, (rng.integers(1, most + 1), 3)).tolist()
        return [f"Ward{a} keeps {b} of lot{c}." for a, b, c in drawn]

    made = [(some(3), [" ".join(some(6)) for _ in range(3)]) for _ in range(prompts)]
    return [(*one, (rng.random(len(one[0])) < 0.25).astype(float).tolist()) for one in made]


def test_weights_that_were_frozen_keep_the_budget_and_those_of_the_same_labels_break_it() -> None:
    alpha, frozen, fitted = 0.2, list[float](), list[float]()
    for seed in range(12):
        bag = said(seed)
        learned = [
            group(str(i), EVERY["support-learned"].support(*one[:2]).tolist(), one[2])
            for i, one in enumerate(bag)
        ]
        frozen.append(risk(learned, "any", lambda some: right(some, alpha)))
        rows = [np.column_stack([features(*one[:2]), np.ones(len(one[0]))]) for one in bag]
        for fresh in range(len(bag)):
            others = [place for place in range(len(bag)) if place != fresh]
            labels = np.concatenate([bag[place][2] for place in others])
            weights = np.linalg.lstsq(np.vstack([rows[place] for place in others]), 1 - labels)[0]
            scores = [(1 / (1 + np.exp(-(one @ weights)))).tolist() for one in rows]
            seen = [group(str(place), scores[place], bag[place][2]) for place in others]
            ships = np.array(scores[fresh]) > right(seen, alpha)
            fitted.append(claim_loss("any").at(np.array(bag[fresh][2]), ships))
    assert np.mean(frozen) <= alpha + 1e-9
    assert np.mean(fitted) > 1.2 * alpha
