"""What callers may pass, and what they are told when it is wrong."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from streamer import calibrate

GOOD = {"scores": [0.1, 0.9], "severities": [1, 0], "groups": ["a", "b"], "alpha": 0.4}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [0.1, 0.9, 0.5]}, "scores has 3 items and severities 2"),
        ({"groups": ["a"]}, "scores has 2 items and groups 1"),
        ({"scores": [0.1, np.nan]}, "scores holds NaN, first at position 1"),
        ({"severities": [np.nan, 1]}, "severities holds NaN, first at position 0"),
        ({"scores": [0.1, 1.0000005]}, r"scores must lie in \[0, 1\]; position 1 holds 1.0000005"),
        ({"severities": [-0.1, 1]}, r"severities must lie in \[0, 1\]; position 0 holds -0.1"),
        ({"scores": [np.inf, 0]}, "position 0 holds inf"),
        ({"scores": [], "severities": [], "groups": []}, "scores is empty"),
        ({"scores": [[0.1], [0.9]]}, r"one-dimensional, not of shape \(2, 1\)"),
        ({"scores": ["low", "high"]}, "scores must be numbers"),
        ({"scores": [0.1 + 1j, 0.2]}, "scores must be numbers, not complex128"),
        ({"scores": [None, 0.2]}, "scores holds NaN, first at position 0"),
        ({"scores": [{}, 0.2]}, "scores must be numbers"),
        ({"alpha": 0}, "alpha must be between 0 and 1, both excluded, not 0"),
        ({"alpha": 1.0}, "alpha must be"),
        ({"alpha": float("nan")}, "alpha must be"),
        ({"alpha": "0.1"}, "alpha must be"),
        ({"alpha": True}, "alpha must be"),
        (
            {"method": "median"},
            "method must be one of mean, crc, bb, rbwa, hb, betting, bernstein, clt, not 'median'",
        ),
        ({"method": "rbwa", "eta": 0}, "eta must be positive and finite, not 0"),
        ({"method": "rbwa", "eta": float("inf")}, "eta must be"),
        ({"method": "bb", "draws": 0}, "draws must be at least 1, not 0"),
        ({"method": "bb", "draws": 2.5}, "draws must be at least 1, not 2.5"),
        ({"method": "crc", "seed": -1}, "seed must be a whole number of at least 0, not -1"),
        ({"method": "crc", "seed": None}, "seed must be a whole number"),
        ({"groups": [["a"], ["b"]]}, "hashable"),
        ({"groups": np.array([[1], [2]])}, "groups must be one-dimensional"),
        ({"groups": np.array([1.0, np.nan])}, "a group id is NaN"),
        ({"groups": [float("nan"), 1.0]}, "a group id is NaN"),
        ({"groups": "ab"}, "not a single text"),
    ],
)
def test_wrong_arguments_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        calibrate(**(GOOD | change))


@pytest.mark.parametrize(
    "groups",
    [
        [3, 3, 9, 9, 9],
        (("x", 1), ("x", 1), ("y", 2), ("y", 2), ("y", 2)),
        ["1", "1", 1, 1, 1],
        [None, None, b"b", b"b", b"b"],
        np.array([3, 3, 9, 9, 9]),
        np.array([-128, -128, 127, 127, 127], dtype=np.int8),
        np.array([0, 0, 2**64 - 1, 2**64 - 1, 2**64 - 1], dtype=np.uint64),
        np.array([-(2**63), -(2**63), 2**63 - 1, 2**63 - 1, 2**63 - 1]),
        np.array([2**63, 2**63, 2**63 + 7, 2**63 + 7, 2**63 + 7], dtype=np.uint64),
        np.array([False, False, True, True, True]),
        np.array(["p", "p", "q", "q", "q"]),
        np.array(["p", "p", 1, 1, 1], dtype=object),
        np.array([0.5, 0.5, 1.5, 1.5, 1.5]),
        np.array(
            ["2026-01-01", "2026-01-01", "2026-01-02", "2026-01-02", "2026-01-02"], dtype="datetime64[D]"
        ),
    ],
    ids=lambda groups: str(getattr(groups, "dtype", type(groups).__name__)),
)
def test_group_ids_of_any_kind_tell_groups_apart(groups):
    threshold = calibrate([0.1, 0.2, 0.3, 0.4, 0.5], [0, 1, 1, 0, 0], groups, alpha=0.6)
    assert threshold.groups == 2
    # B = .6 * 3 - 1 = .8: the loss 1/3 at .3 fits and the loss 1/2 at .2 does not
    assert threshold.value == 0.2


@pytest.mark.parametrize("kind", [np.float32, np.float16, object, Decimal, Fraction])
def test_numbers_of_any_kind_are_taken(kind):
    values = [kind(0), kind(1)] if kind in (Decimal, Fraction) else np.array([0, 1], dtype=kind)
    assert calibrate(values, [True, False], [1, 2], alpha=0.4).value == 0.0


def test_inputs_are_left_alone():
    scores, severities, groups = np.array([0.2, 0.1]), np.array([0.0, 1.0]), np.array([5, 4])
    for array in (scores, severities, groups):
        array.setflags(write=False)
    for method in ("mean", "crc", "bb", "rbwa"):
        calibrate(scores, severities, groups, alpha=0.4, method=method)
    assert scores.tolist() == [0.2, 0.1]
    assert groups.tolist() == [5, 4]
