"""Numbers of the user's own: how they are declared."""

from typing import Any

import pytest

from streamer.scoring.signals.declared import declared_ranges
from streamer.scoring.signals.signal_list import SignalList, signal_list


def test_signals_are_declared_by_name_and_range() -> None:
    declared = (("retrieval", 0.0, 1.0), ("margin_2", -1.5, 1e3))
    assert signal_list(["retrieval=0..1", "margin_2=-1.5..1e3"]).declared == declared
    assert declared_ranges({"retrieval": (0, 1), "margin_2": [-1.5, 1000]}) == {
        name: (least, most) for name, least, most in declared
    }
    assert signal_list([]) == SignalList()
    assert signal_list(["half=.5...75", "score", "model=größer"]) == SignalList(
        given=("score",), models=("größer",), declared=(("half", 0.5, 0.75),)
    )


@pytest.mark.parametrize(
    "text",
    ["retrieval", "retrieval=", "retrieval=0", "retrieval=0..", "=0..1", "retrieval=1..0", "retrieval=0..0", "Retrieval=0..1",
     "re-trieval=0..1", "score=0..1", "judge=0..1", "retrieval=0..inf", "retrieval=nan..1", "retrieval=a..b", "a" * 41 + "=0..1"],
)  # fmt: skip
def test_what_declares_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be|cannot be called|needs its range"):
        signal_list([text])


@pytest.mark.parametrize(
    "declared",
    [{"a": 1}, {"a": (0, 1, 2)}, {"a": None}, {"a": ("0", "1")}, {1: (0, 1)}, {"a": (0, 10**400)}, ["a"]],
)
def test_ranges_that_are_none(declared: Any) -> None:
    with pytest.raises(ValueError, match=r"the (range|name) of|a dict"):
        declared_ranges(declared)


def test_more_than_twenty_or_one_twice() -> None:
    with pytest.raises(ValueError, match="at most 20"):
        signal_list([f"s{i}=0..1" for i in range(21)])
    with pytest.raises(ValueError, match="twice"):
        signal_list(["a=0..1", "a=0..2"])
