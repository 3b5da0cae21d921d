"""Rules of policies: what they may hold, and their one JSON form."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.gates.rule import (
    INDICATOR,
    BatchCut,
    Chance,
    Cut,
    Quantile,
    Rank,
    Rule,
    Segments,
    rule_from_json,
    rule_of_text,
    rule_text,
    rule_to_json,
)

finite = st.floats(-1e6, 1e6)
cuts = st.one_of(
    st.just(Cut("closed", None)), st.just(Cut("open", None)), finite.map(lambda v: Cut("cut", v))
)


@st.composite
def windows(draw: st.DrawFn) -> BatchCut:
    levels = sorted(draw(st.sets(finite, min_size=1, max_size=20)))
    totals = sorted(draw(st.lists(finite, min_size=len(levels), max_size=len(levels))), reverse=True)
    if draw(st.booleans()):
        levels[0] = -math.inf
    return BatchCut(
        alpha=draw(st.floats(0.01, 0.99)), groups=draw(st.integers(0, 10**6)),
        labelled=draw(st.none() | st.integers(1, 256)), levels=tuple(levels), totals=tuple(totals),
        floor=draw(st.none() | st.floats(0, 1)),
    )  # fmt: skip


rules: st.SearchStrategy[Rule] = st.one_of(
    st.just(INDICATOR),
    st.builds(Chance, st.sampled_from(["smooth", "ramp"]), st.floats(1e-6, 100)),
    st.builds(Quantile, st.none() | st.floats(0, 1)),
    st.just(Rank()),
    windows(),
    st.builds(
        lambda key, own: Segments(key, tuple(sorted(own.items()))),
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
        st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), cuts),
    ),
)


@given(rules)
def test_a_rule_survives_its_json_form_to_the_last_bit(rule: Rule) -> None:
    assert rule_of_text(rule_text(rule)) == rule
    assert rule_from_json(json.loads(json.dumps(rule_to_json(rule)))) == rule
    assert rule_text(rule_of_text(rule_text(rule))) == rule_text(rule)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"kind": "sigmoid", "parameters": {}},
        {"kind": "smooth", "parameters": {}},
        {"kind": "smooth", "parameters": {"width": 0}},
        {"kind": "ramp", "parameters": {"width": True}},
        {"kind": "quantile", "parameters": {"quantile": 2}},
        {"kind": "transductive", "parameters": {"alpha": 0.1, "groups": 3, "labelled": None, "floor": None}},
        {
            "kind": "transductive",
            "parameters": {"alpha": 0.1, "groups": 1.5, "labelled": None, "floor": None},
            "curve": [[0.1, 1]],
        },
        {
            "kind": "transductive",
            "parameters": {"alpha": 0.1, "groups": 1, "labelled": None, "floor": None},
            "curve": [[0.1, 1], [None, 0]],
        },
        {"kind": "segments", "parameters": {"key": "k", "own": {"a": {"state": "cut", "lambda": None}}}},
        {"kind": "segments", "parameters": {"key": "k", "own": ["a"]}},
        {"kind": ["indicator"], "parameters": {}},
    ],
)
def test_what_is_no_rule_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        rule_from_json(document)


def test_a_cut_says_where_it_cuts() -> None:
    for value, state in ((math.inf, "closed"), (-math.inf, "open"), (0.5, "cut"), (-2.0, "cut")):
        cut = Cut.at(value)
        assert (cut.state, cut.value) == (state, value)
    for state, threshold in (("cut", None), ("open", 0.1), ("cut", math.nan), ("ajar", None)):
        with pytest.raises(ValueError, match=r".+"):
            Cut(state, threshold)  # type: ignore[arg-type]


def test_segments_are_sorted_and_unique() -> None:
    for own in ([("b", Cut("open", None)), ("a", Cut("open", None))], [("a", Cut("open", None))] * 2):
        with pytest.raises(ValueError, match="sorted"):
            Segments("k", tuple(own))
