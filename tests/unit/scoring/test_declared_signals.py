"""Numbers of the user's own: how they are declared."""

from typing import Any

import pytest

from streamer.errors import UsageError
from streamer.scoring.signals.declared import declared_ranges, parse_signals


def test_signals_are_declared_by_name_and_range() -> None:
    wanted = {"retrieval": (0.0, 1.0), "margin_2": (-1.5, 1e3)}
    assert parse_signals(["retrieval=0..1", " margin_2 = -1.5 .. 1e3"]) == wanted
    assert declared_ranges({"retrieval": (0, 1), "margin_2": [-1.5, 1000]}) == wanted
    assert parse_signals([]) == {}
    assert parse_signals(["half=.5...75"]) == {"half": (0.5, 0.75)}


@pytest.mark.parametrize(
    "text",
    ["retrieval", "retrieval=", "retrieval=0", "retrieval=0..", "=0..1", "retrieval=1..0", "retrieval=0..0", "Retrieval=0..1",
     "re-trieval=0..1", "score=0..1", "judge=0..1", "retrieval=0..inf", "retrieval=nan..1", "retrieval=a..b", "a" * 41 + "=0..1"],
)  # fmt: skip
def test_what_declares_nothing_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--signal.* must be|cannot be called"):
        parse_signals([text])


@pytest.mark.parametrize(
    "declared", [{"a": 1}, {"a": (0, 1, 2)}, {"a": None}, {1: (0, 1)}, {"a": (0, 10**400)}]
)
def test_ranges_that_are_none(declared: dict[Any, Any]) -> None:
    with pytest.raises(ValueError, match=r"the (range|name) of"):
        declared_ranges(declared)


def test_more_than_twenty_or_one_twice() -> None:
    with pytest.raises(UsageError, match="at most 20"):
        parse_signals([f"s{i}=0..1" for i in range(21)])
    with pytest.raises(UsageError, match="each name once"):
        parse_signals(["a=0..1", "a=0..2"])
