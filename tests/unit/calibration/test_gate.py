"""What ships: the three units, the three states, ties and blank answers."""

import math
import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer import Threshold, calibrate, decide
from streamer.gates.gate import BatchGate, gate_batch
from streamer.scoring.blank import is_blank
from streamer_verify import actions


def threshold(state: str, value: float) -> Threshold:
    return Threshold(state=state, value=value, alpha=0.1, method="mean", groups=9, guarantee="")


CLOSED, CUT, OPEN = threshold("closed", math.inf), threshold("cut", 0.5), threshold("open", -math.inf)


def test_a_score_ships_only_above_the_threshold():
    scores = [0.0, 0.5, np.nextafter(0.5, 1), 1.0]
    assert decide(scores, CUT).tolist() == [False, False, True, True]
    assert decide(scores, CLOSED).tolist() == [False] * 4
    assert decide(scores, OPEN).tolist() == [True] * 4


def test_the_answer_has_the_shape_of_the_scores():
    assert decide(np.zeros((2, 3)), OPEN).shape == (2, 3)
    assert decide(0.7, CUT).shape == ()
    assert decide(0.7, CUT)
    assert decide([], CUT).dtype == np.bool_


def test_nan_never_ships():
    for state in (CLOSED, CUT, OPEN):
        assert not decide([np.nan], state).any()


def test_single_precision_scores_meet_the_threshold_in_double_precision():
    score = np.array([0.7], dtype=np.float32)
    just_below = threshold("cut", float(np.nextafter(score.astype(np.float64), 0)[0]))
    assert decide(score, just_below).all()
    scores = np.random.default_rng(0).random(50).astype(np.float32)
    found = calibrate(scores, np.ones(50), np.arange(50), alpha=0.2)
    assert decide(scores, found).sum() == 9  # B = .2 * 51 - 1 = 9.2 losses of 1 fit


@pytest.mark.parametrize(
    ("unit", "state", "value", "blank", "expected"),
    [
        ("best", "cut", 0.5, None, BatchGate((False, True, False, False), 1, 1, 0.9)),
        ("best", "cut", 0.9, None, BatchGate((False, False, False, False), 1, None, 0.9)),
        ("best", "open", None, None, BatchGate((False, True, False, False), 1, 1, 0.9)),
        ("best", "closed", None, None, BatchGate((False, False, False, False), 1, None, 0.9)),
        ("best", "cut", 0.5, [False, True, True, False], BatchGate((True, False, False, False), 0, 0, 0.7)),
        ("best", "open", None, [True] * 4, BatchGate((False, False, False, False), None, None, 0.0)),
        ("response", "cut", 0.5, None, BatchGate((True, True, True, False), None, None, None)),
        ("response", "cut", 0.7, None, BatchGate((False, True, True, False), None, None, None)),
        (
            "response",
            "open",
            None,
            [False, True, False, True],
            BatchGate((True, False, True, False), None, None, None),
        ),
        ("response", "closed", None, None, BatchGate((False, False, False, False), None, None, None)),
        ("batch", "cut", 0.5, None, BatchGate((True, True, True, True), None, None, 0.625)),
        ("batch", "cut", 0.625, None, BatchGate((False, False, False, False), None, None, 0.625)),
        ("batch", "open", None, [False, False, False, True], BatchGate((False,) * 4, None, None, 0.625)),
        ("batch", "open", None, None, BatchGate((True, True, True, True), None, None, 0.625)),
        ("batch", "closed", None, None, BatchGate((False, False, False, False), None, None, 0.625)),
    ],
)
def test_each_unit_in_each_state(unit, state, value, blank, expected):
    assert gate_batch([0.7, 0.9, 0.9, 0.0], unit=unit, state=state, threshold=value, blank=blank) == expected


def test_a_written_answer_of_score_zero_goes_before_a_blank_one():
    gate = gate_batch([0.0, 0.0], unit="best", state="open", threshold=None, blank=[True, False])
    assert gate == BatchGate((False, True), 1, 1, 0.0)


def test_arrays_are_taken_and_plain_values_are_returned():
    gate = gate_batch(
        np.array([0.7, 0.9]), unit="response", state="cut", threshold=0.8, blank=np.array([False, False])
    )
    assert gate == BatchGate((False, True), None, None, None)
    assert [type(shipped) for shipped in gate.shipped] == [bool, bool]
    assert (
        type(gate_batch(np.array([0.7, 0.9]), unit="best", state="open", threshold=None).unit_score) is float
    )


def test_the_mean_score_is_rounded_once():
    gate = gate_batch([0.1, 0.2, 0.3], unit="batch", state="cut", threshold=0.2)
    assert gate == BatchGate((False, False, False), None, None, 0.2)


@given(
    scores=st.lists(st.integers(0, 8).map(lambda k: k / 8), min_size=1, max_size=9),
    blank_bits=st.integers(0, 511),
    bars=st.tuples(st.floats(-1, 2), st.floats(-1, 2)),
    unit=st.sampled_from(["best", "response", "batch"]),
)
def test_a_higher_threshold_never_ships_more(scores, blank_bits, bars, unit):
    blank = [bool(blank_bits >> i & 1) for i in range(len(scores))]
    low, high = (
        gate_batch(scores, unit=unit, state="cut", threshold=bar, blank=blank).shipped for bar in sorted(bars)
    )
    everything = gate_batch(scores, unit=unit, state="open", threshold=None, blank=blank).shipped
    for more, less in ((low, high), (everything, low)):
        assert all(m or not le for m, le in zip(more, less, strict=True))
    assert not any(s and b for s, b in zip(everything, blank, strict=True))
    assert unit != "best" or sum(everything) <= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": []}, "without responses"),
        ({"scores": [0.5, math.nan]}, "must lie in"),
        ({"scores": [1.5]}, "must lie in"),
        ({"blank": [True]}, "2 scores and 1 marks"),
        ({"state": "cut"}, "cannot have threshold None"),
        ({"threshold": 0.5}, "state 'open' cannot have threshold 0.5"),
        ({"state": "cut", "threshold": math.inf}, "must be finite"),
        ({"state": "cut", "threshold": math.nan}, "must be finite"),
        ({"state": "ajar"}, "closed, cut or open"),
        ({"unit": "prompt"}, "unit must be one of best, response, batch"),
    ],
    ids=str,
)
def test_contradictions_are_refused(change, message):
    arguments = {"scores": [0.1, 0.2], "unit": "best", "state": "open", "threshold": None} | change
    with pytest.raises(ValueError, match=message):
        gate_batch(arguments.pop("scores"), **arguments)


UNSEEN = (
    "\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2064\ufeff\u00ad\u034f\u061c\u180b\u180e\u2065\u206a"  # format
    "\u202a\u202e\u2066\u2069\ufe00\ufe0f\U000e0001\U000e0041\U000e007f\U000e0100\U000e0fff\ufff0\U0001d173"
    "\u3164\u115f\u1160\uffa0\u17b4\u2800\ufffc\ufffd\U0001d159"  # letters and signs without ink
    "\ue000\uf8ff\U000f0000\U0010fffd"  # for private use
    "\ufdd0\ufdef\ufffe\uffff\U0001ffff\U0010fffe"  # no characters at all
    " \u00a0\u2003\u3000\u1680\u2028\u2029\t\n\r\x00\x1b\x7f\x85\u0301\u20dd\u0903"
)
SEEN = (
    "a",
    "0",
    ".",
    "-",
    "中",
    "ㅎ",
    "ـ",
    "\u0628",
    "👍",
    "e\u0301",
    "\U0001faf0",
    "\ufdcf",
    "\ufdf0",
    "€",
    "\u200ba",
)


@pytest.mark.parametrize("character", UNSEEN, ids=lambda one: f"U+{ord(one):04X}")
def test_a_text_of_characters_that_nobody_sees_is_blank(character):
    assert is_blank(character)
    assert is_blank(f" {character}\u200b{character}")
    assert not is_blank(f"{character}a{character}")


@pytest.mark.parametrize("text", SEEN)
def test_a_text_with_one_character_that_is_seen_is_not_blank(text):
    assert not is_blank(text)


def test_the_verifier_and_the_gate_agree_about_every_character():
    for character in map(chr, range(sys.maxunicode + 1)):
        blank = is_blank(character)
        assert blank == actions.is_blank(character)
        assert blank or character.strip(), "what was blank before is blank"
        assert not (blank and unicodedata.category(character) in ("Nd", "Nl", "Lu", "Ll", "Sc", "Sm", "Po"))
    assert is_blank("")
