"""Which of two thresholds ships less, how far apart they are, and how much each ships."""

import math

import numpy as np
import pytest

from streamer.calibration import LabelledGroup
from streamer.calibration.shapes import Smooth
from streamer.calibration.specification import Sample
from streamer.gates.policy_gate import PolicyGate
from streamer.gates.rule import INDICATOR, BatchCut, Chance, Cut, Quantile, Rank, Rule, Segments
from streamer.gates.settings import GateSettings
from streamer.recalibration.candidates import candidates
from streamer.recalibration.comparison import Reading, direction, lambda_step, ship_rate
from streamer.recalibration.sampled import SampledGroup
from tests.made import a_sampled_prompt

CLOSED, OPEN = math.inf, -math.inf


def reading(value: float, rule: Rule = INDICATOR) -> Reading:
    return Reading(Cut.at(value), rule)


def segments(**levels: float) -> Segments:
    return Segments("k", tuple((name, Cut.at(value)) for name, value in sorted(levels.items())))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (reading(0.5), reading(0.5), "same"),
        (reading(0.5), reading(0.6), "tighter"),
        (reading(0.6), reading(0.5), "looser"),
        (reading(CLOSED), reading(0.99), "looser"),
        (reading(OPEN), reading(0.0), "tighter"),
        (reading(0.0), reading(OPEN), "looser"),
        (reading(0.5), reading(CLOSED), "tighter"),
        (reading(CLOSED), reading(CLOSED), "same"),
        (reading(CLOSED), reading(CLOSED, Rank()), "same"),
        (reading(0.5, Rank()), reading(0.6, Rank()), "tighter"),
        (reading(0.5, Chance("ramp", 0.1)), reading(0.4, Chance("ramp", 0.1)), "looser"),
        (reading(0.5, Chance("ramp", 0.1)), reading(0.6, Chance("ramp", 0.2)), "looser"),
        (reading(0.5, Quantile(0.7)), reading(0.6, Quantile(0.6)), "tighter"),
        (reading(0.5), reading(0.6, Rank()), "looser"),
        (reading(CLOSED, segments(a=0.5)), reading(CLOSED, segments(a=0.6)), "tighter"),
        (reading(CLOSED, segments(a=0.5)), reading(CLOSED, segments(a=0.6, b=0.9)), "looser"),
        (reading(CLOSED, segments(a=0.5, b=0.5)), reading(CLOSED, segments(a=0.6, b=0.4)), "looser"),
        (reading(CLOSED, segments(a=0.5)), reading(CLOSED, segments()), "tighter"),
        (reading(0.5, segments(a=0.5)), reading(0.5, segments(a=0.5)), "same"),
        (reading(0.5, segments(a=0.9)), reading(0.5, segments()), "looser"),
        (reading(CLOSED, segments(a=CLOSED)), reading(CLOSED), "same"),
    ],
)
def test_what_may_ship_more_is_looser(before: Reading, after: Reading, expected: str) -> None:
    assert direction(before, after) == expected
    opposite = {"tighter": "looser", "same": "same"}
    if expected in opposite:
        assert direction(after, before) == opposite[expected]


@pytest.mark.parametrize(
    ("before", "after", "step"),
    [
        (reading(0.5), reading(0.625), 0.125),
        (reading(CLOSED), reading(0.75), 0.25),
        (reading(OPEN), reading(0.25), 0.25),
        (reading(CLOSED), reading(OPEN), 1.0),
        (reading(CLOSED), reading(CLOSED), 0.0),
        (reading(-0.5), reading(0.25), 0.25),
        (reading(CLOSED, segments(a=0.5)), reading(CLOSED, segments(a=0.75, b=0.5)), 0.5),
        (reading(-2.0, Chance("smooth", 0.1)), reading(-1.0, Chance("smooth", 0.1)), 1.0),
        (reading(CLOSED), reading(0.9, Chance("smooth", 0.1)), math.inf),
    ],
)
def test_the_step_is_the_largest_of_all_levels(before: Reading, after: Reading, step: float) -> None:
    assert lambda_step(before, after) == step


def groups(*scores: tuple[float, ...], segment: str | None = None) -> list[SampledGroup]:
    return [
        a_sampled_prompt(("g", f"b{n}"), [(str(i), s, 0.0) for i, s in enumerate(own)], segment=segment)
        for n, own in enumerate(scores)
    ]


def test_each_group_counts_once_in_the_share_that_ships() -> None:
    sample = groups((0.9,), (0.2, 0.9, 0.9, 0.2), (0.1,))
    assert ship_rate(reading(0.5), "response", sample) == pytest.approx((1 + 0.5 + 0) / 3)
    assert ship_rate(reading(0.2), "response", sample) == pytest.approx((1 + 0.5 + 0) / 3), "above, not at"
    assert ship_rate(reading(OPEN), "response", sample) == 1
    assert ship_rate(reading(CLOSED), "response", sample) == 0
    assert ship_rate(reading(0.5), "response", []) == 0


def test_a_gate_by_chance_counts_with_its_chances_and_segments_with_their_own_cuts() -> None:
    sample = groups((0.9,), (0.5,))
    expected = Smooth(0.1).share(np.array([0.9, 0.5]), 0.6).mean()
    assert ship_rate(reading(0.6, Chance("smooth", 0.1)), "best", sample) == pytest.approx(expected)
    rule = segments(a=0.4)
    assert ship_rate(reading(CLOSED, rule), "best", groups((0.5,), segment="a")) == 1
    assert ship_rate(reading(CLOSED, rule), "best", groups((0.5,), segment="b")) == 0


def window(severities: np.ndarray, alpha: float) -> Reading:
    """What the transductive method finds on groups of four responses with these severities."""
    rng = np.random.default_rng(7)
    scores = rng.random((len(severities), 4)).round(3)
    labelled = tuple(
        LabelledGroup(id=str(n), item_ids=tuple("abcd"), scores=scores[n], severities=severities[n])
        for n in range(len(severities))
    )
    settings = GateSettings(encoder="e@1", unit="response", method="transductive", alpha=alpha, audit_draws=4)
    sample = Sample(groups=labelled, segments={}, alpha=alpha, seed=1, drawn=4)
    own = next(one for one in candidates(settings, sample) if one.decides)
    return Reading(Cut.at(own.threshold.value), own.rule)


def test_a_transductive_rule_is_tighter_only_if_no_batch_can_get_a_lower_lambda() -> None:
    rng = np.random.default_rng(3)
    severities = (rng.random((200, 4)) < 0.3).astype(float)
    worse = np.maximum(severities, (rng.random((200, 4)) < 0.1).astype(float))
    present, tight = window(severities, 0.15), window(worse, 0.15)
    assert isinstance(present.rule, BatchCut)
    assert direction(present, tight) == "tighter"
    assert direction(tight, present) == "looser"
    gates = [PolicyGate(unit="response", cut=one.cut, rule=one.rule) for one in (present, tight)]
    for scores in rng.random((500, 6)):
        old, new = (gate.decide(list(scores)) for gate in gates)
        assert new.cut.value >= old.cut.value
    sample = groups(*[tuple(row) for row in rng.random((50, 4))])
    assert ship_rate(tight, "response", sample) <= ship_rate(present, "response", sample)
