"""Calibration on named groups: every draw follows from the seed and the names, and from nothing else."""

import numpy as np
import pytest

from streamer import LabelledGroup, calibrate, calibrate_groups
from streamer.calibration.calibrators.bb import Bb
from streamer.calibration.calibrators.crc import Crc
from streamer.calibration.calibrators.rbwa import Rbwa
from streamer.calibration.groups import labelled_groups
from streamer.calibration.keyed_weights import KeyedWeights
from streamer.calibration.registry import weighting_scheme, weighting_schemes
from streamer.calibration.weighting import keyed_losses

CRC = [1.0, 0.0, 0.0]
BB = [0.4, 0.2, 0.4]
RBWA = [0.0005993502428885556, 0.2656369354657941, 0.7337637142913175]


def some_groups(rng: np.random.Generator, count: int = 40) -> list[LabelledGroup]:
    groups = []
    for g in range(count):
        size = int(rng.integers(1, 7))
        scores = np.round(rng.random(size), 1)
        groups.append(
            LabelledGroup(f"batch-{g}", tuple(f"r{i}" for i in range(size)), scores, rng.random(size))
        )
    return groups


def test_mean_agrees_with_the_arrays():
    groups = some_groups(np.random.default_rng(5))
    arrays = calibrate(
        np.concatenate([g.scores for g in groups]),
        np.concatenate([g.severities for g in groups]),
        [g.id for g in groups for _ in g.item_ids],
        alpha=0.1,
    )
    assert calibrate_groups(groups, alpha=0.1, seed=0) == arrays


@pytest.mark.parametrize("scheme", ["crc", "bb", "rbwa"])
def test_weights_follow_the_names_of_the_items(scheme):
    def weights(items: list[str]) -> dict[str, float]:
        law = weighting_scheme(scheme, {"draws": 5, "eta": 1.0})
        drawn = law.keyed("g", items, KeyedWeights(3))
        return dict(zip(items, drawn.tolist(), strict=True))

    items = ["a", "a\0", "b", "é", "\ud800", "c" * 200, *(f"r{i}" for i in range(40))]
    for _ in range(20):
        shuffled = [items[i] for i in np.random.default_rng(len(items)).permutation(len(items))]
        assert weights(items) == weights(shuffled)
        items.pop()


def test_weights_are_the_same_for_ever():
    """Recorded once: a policy's threshold must follow from its record years later."""
    named = ("batch-1", ["a", "b", "c"], KeyedWeights(20261120))
    assert Crc().keyed(*named).tolist() == CRC
    assert Bb(10).keyed(*named).tolist() == BB
    assert Rbwa(1.0).keyed(*named) == pytest.approx(RBWA, rel=1e-12)


def test_another_seed_or_another_group_gives_other_weights():
    items = [str(i) for i in range(8)]
    names = ((1, "x"), (2, "x"), (-1, "x"), (1, "y"))
    assert len({tuple(Rbwa(1.0).keyed(g, items, KeyedWeights(s))) for s, g in names}) == 4


@pytest.mark.parametrize(
    ("items", "scores", "severities", "message"),
    [
        ((), [], [], "group 'g' has no items"),
        (("a", "a"), [0, 1], [0, 1], "group 'g' names an item twice"),
        (("a", "b"), [0.5], [0, 1], "group 'g' has 2 items and 1 scores"),
        (("a",), [0.5], [0, 1], "group 'g' has 1 items and 2 severities"),
        (("a",), [np.nan], [0], "group 'g': scores holds NaN"),
        (("a",), [0.5], [1.5], r"group 'g': severities must lie in \[0, 1\]"),
    ],
)
def test_a_group_that_contradicts_itself_is_refused(items, scores, severities, message):
    with pytest.raises(ValueError, match=message):
        LabelledGroup("g", items, np.array(scores), np.array(severities))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 1}, "alpha"),
        ({"method": "clt"}, "method"),
        ({"seed": 0.5}, "seed must be a whole number"),
        ({"method": "bb", "draws": 0}, "draws"),
        ({"method": "rbwa", "eta": -1}, "eta"),
    ],
)
def test_wrong_arguments_are_named(change, message):
    groups = some_groups(np.random.default_rng(0), 3)
    with pytest.raises(ValueError, match=message):
        calibrate_groups(groups, **({"alpha": 0.1, "seed": 1} | change))


def test_a_group_that_is_there_twice_is_refused():
    group = some_groups(np.random.default_rng(0), 1)[0]
    with pytest.raises(ValueError, match="group 'batch-0' occurs twice"):
        calibrate_groups([group, group], alpha=0.1, seed=1)


def test_many_groups_made_at_once_are_those_made_one_by_one() -> None:
    groups = some_groups(np.random.default_rng(5))
    made = labelled_groups(
        [group.id for group in groups],
        [group.item_ids for group in groups],
        np.concatenate([group.scores for group in groups]),
        np.concatenate([group.severities for group in groups]),
    )
    for one, other in zip(groups, made, strict=True):
        assert (one.id, one.item_ids) == (other.id, other.item_ids)
        assert np.array_equal(one.scores, other.scores)
        assert np.array_equal(one.severities, other.severities)
    assert labelled_groups([], [], np.empty(0), np.empty(0)) == ()


@pytest.mark.parametrize(
    ("items", "scores", "severities", "said"),
    [
        ([("a",), ()], [0.5], [0.5], "group 'g1' has no items"),
        ([("a",), ("b", "b")], [0.5] * 3, [0.5] * 3, "group 'g1' names an item twice"),
        ([("a",), ("b",)], [0.5] * 3, [0.5] * 3, "2 items have 3 scores"),
        ([("a",), ("b",)], [0.5, 1.5], [0.5] * 2, "scores must lie in"),
        ([("a",), ("b",)], [0.5] * 2, [0.5, float("nan")], "severities holds NaN"),
    ],
)
def test_many_groups_are_checked_as_one_is(
    items: list[tuple[str, ...]], scores: list[float], severities: list[float], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        labelled_groups(["g0", "g1"], items, np.array(scores), np.array(severities))


@pytest.mark.parametrize("method", weighting_schemes())
def test_the_one_item_of_a_group_has_the_whole_weight_under_every_law(method: str) -> None:
    law = weighting_scheme(method, {"eta": 0.01, "draws": 20})
    assert law.keyed("g", "a", KeyedWeights(3)).tolist() == [1.0]
    group = LabelledGroup("g", ("a",), np.array([0.5]), np.array([0.3]))
    scores, losses = keyed_losses([group], scheme=law, seed=3)
    assert (scores.tolist(), losses.tolist()) == ([0.5], [0.3])
