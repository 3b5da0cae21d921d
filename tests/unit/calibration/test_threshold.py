"""The threshold as a value, in JSON and in words."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer import Threshold, calibrate
from streamer.calibration import groups_needed
from streamer.calibration.registry import weighting_schemes

CUT = {"state": "cut", "value": 0.5, "alpha": 0.1, "method": "mean", "groups": 9, "guarantee": "words"}


@st.composite
def thresholds(draw: st.DrawFn) -> Threshold:
    state = draw(st.sampled_from(["closed", "cut", "open"]))
    finite = st.floats(allow_nan=False, allow_infinity=False)
    return Threshold(
        state=state,
        value={"closed": math.inf, "open": -math.inf}.get(state) or draw(finite),
        alpha=draw(st.floats(0, 1, exclude_min=True, exclude_max=True)),
        method=draw(st.sampled_from(weighting_schemes())),
        groups=draw(st.integers(0, 10**12)),
        guarantee=draw(st.text()),
    )


@given(threshold=thresholds())
def test_json_round_trip_is_exact_and_strict(threshold):
    text = threshold.to_json()
    fields = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert (fields["lambda"] is None) == (threshold.state != "cut")
    again = Threshold.from_json(text)
    assert again == threshold
    assert math.copysign(1, again.value) == math.copysign(1, threshold.value)
    assert Threshold.from_json(text.encode()) == threshold


def test_unknown_fields_are_passed_over():
    text = Threshold(**CUT).to_json()
    assert Threshold.from_json(json.dumps(json.loads(text) | {"later": 1})) == Threshold(**CUT)


@pytest.mark.parametrize(
    "change",
    [
        {"state": "ajar"},
        {"state": "closed"},
        {"lambda": None},
        {"lambda": "0.5"},
        {"lambda": True},
        {"lambda": 10**400},
        {"alpha": 0},
        {"alpha": None},
        {"method": "median"},
        {"method": ["mean"]},
        {"state": []},
        {"groups": -1},
        {"groups": 2.0},
        {"guarantee": None},
    ],
    ids=str,
)
def test_json_that_contradicts_itself_is_refused(change):
    fields = json.loads(Threshold(**CUT).to_json()) | change
    with pytest.raises(ValueError, match=r"."):
        Threshold.from_json(json.dumps(fields))


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"state": "cut"}', "[" * 100_000])
def test_text_that_is_no_threshold_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        Threshold.from_json(text)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_json_constants_that_are_not_json_are_refused(constant):
    text = Threshold(**CUT).to_json().replace("0.5", constant)
    with pytest.raises(ValueError, match="not JSON"):
        Threshold.from_json(text)


@pytest.mark.parametrize(
    "change",
    [
        {"state": "cut", "value": math.inf},
        {"state": "cut", "value": math.nan},
        {"state": "open", "value": math.inf},
        {"state": "closed", "value": 1.0},
        {"state": "ajar"},
        {"alpha": 1.0},
        {"alpha": math.nan},
        {"method": "median"},
        {"groups": -1},
    ],
    ids=str,
)
def test_fields_that_contradict_one_another_are_refused(change):
    with pytest.raises(ValueError, match=r"."):
        Threshold(**(CUT | change))


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("mean", "every labelled item of a group weighs the same"),
        ("crc", "one item of each group, drawn at random"),
        ("bb", "7 draws with replacement"),
        ("rbwa", "Dirichlet weights of concentration 0.5"),
    ],
)
def test_the_guarantee_tells_what_was_used_and_no_more(method, words):
    threshold = calibrate(
        [0.2, 0.8, 0.9], [1, 1, 0], ["a", "b", "c"], alpha=0.3, method=method, eta=0.5, draws=7
    )
    text = threshold.guarantee
    for piece in (
        f"method {method}",
        words,
        "3 calibration groups",
        "1/4 = 25 %",
        "On average",
        "at most 30 %",
    ):
        assert piece in text
    assert "exchangeable" in text
    assert ("seed" in text) == (method != "mean")
    promised, _, disclaimed = text.partition("Not promised:")
    assert "high probability" in disclaimed
    assert "shipped alone" in disclaimed
    for word in ("high probability", "safe", "compliant", "certif", "always"):
        assert word not in promised


def test_the_guarantee_of_a_closed_gate_says_what_is_missing():
    threshold = calibrate([0.2], [0], ["a"], alpha=0.05)
    assert threshold.state == "closed"
    assert "Nothing ships" in threshold.guarantee
    assert "1 calibration group." in threshold.guarantee
    assert "at least 19 groups" in threshold.guarantee


def test_the_guarantee_of_an_open_gate_says_that_everything_ships():
    assert calibrate([0.2], [0], ["a"], alpha=0.5).guarantee.startswith("Everything ships")


@given(alpha=st.floats(1e-4, 0.999))
def test_groups_needed_is_where_the_gate_stops_being_closed(alpha):
    needed = groups_needed(alpha)
    if needed:
        assert calibrate([0.5] * needed, [0] * needed, range(needed), alpha=alpha).state == "open"
    if needed > 1:
        fewer = needed - 1
        assert calibrate([0.5] * fewer, [0] * fewer, range(fewer), alpha=alpha).state == "closed"


def test_a_budget_beyond_all_use_needs_a_number_of_groups_too():
    assert groups_needed(5e-324) > 10**300
    assert calibrate([0.5], [0], ["a"], alpha=5e-324).state == "closed"
