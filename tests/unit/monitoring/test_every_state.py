"""What every state keeps: pieces give the bits of the whole, JSON gives back the bits, and rubbish is refused."""

import json
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.risk.states import (
    DrawAlarm,
    DriftAlarm,
    ExposurePlan,
    ExposureSequence,
    RiskAlarm,
    SelectiveAlarm,
)
from streamer.risk.states.drawn_bets import KEPT
from tests.unit.monitoring.streams import audited, draws_of, pieces

REFERENCE = np.random.default_rng(5).normal(size=200)


class _Drifting:
    """A drift alarm that is fed by decisions, so that one test serves all states."""

    def __init__(self, alarm: DriftAlarm) -> None:
        self.alarm = alarm

    def observe(self, decisions):
        return _Drifting(self.alarm.observe(decisions.predicted, decisions.shipped))

    def to_json(self):
        return self.alarm.to_json()

    def from_json(self, text):
        return _Drifting(DriftAlarm.from_json(text))

    def __eq__(self, other):
        return self.alarm == other.alarm

    __hash__ = None


class _Betting:
    """An alarm on labels that is fed by decisions."""

    def __init__(self, alarm: RiskAlarm | SelectiveAlarm, seen: int = 0) -> None:
        self.alarm = alarm
        self.seen = seen

    def observe(self, decisions):
        draws = draws_of(decisions, 0.3, self.seen)
        return _Betting(self.alarm.observe(draws), self.seen + len(decisions))

    def to_json(self):
        return self.alarm.to_json()

    def from_json(self, text):
        return _Betting(type(self.alarm).from_json(text), self.seen)

    def __eq__(self, other):
        return self.alarm == other.alarm

    __hash__ = None


STATES = {
    "exposure": ExposureSequence(plan=ExposurePlan(delta=0.1, least_probability=0.1)),
    "judged": ExposureSequence(plan=ExposurePlan(delta=0.1, least_probability=0.1, judge_cap=0.4)),
    "risk alarm": _Betting(RiskAlarm.open(alpha=0.25, delta=0.1, false_every=1000)),
    "selective alarm": _Betting(SelectiveAlarm.open(delta=0.1)),
    "draw alarm": DrawAlarm.open(delta=0.1, restart_every=7),
    "drift alarm": _Drifting(DriftAlarm.open(REFERENCE, delta=0.1, restart_every=7)),
}


def some_decisions(seed: int, size: int):
    rng = np.random.default_rng(seed)
    probability = rng.uniform(0.1, 0.9, size)
    losses = rng.beta(0.1, 1.0, size)
    predicted, shipped = rng.random(size), rng.uniform(0.1, 1, size)
    return audited(losses, probability, rng, missing=0.2, predicted=predicted, shipped=shipped)


@pytest.mark.parametrize("name", STATES)
@settings(max_examples=20, deadline=None, database=None)
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 60), max_size=4))
def test_pieces_and_restarts_give_the_bits_of_the_whole(name, seed, cuts):
    state, decisions = STATES[name], some_decisions(seed, 60)
    through_json = reduce(
        lambda before, piece: before.from_json(before.to_json()).observe(piece),
        pieces(decisions, cuts),
        state,
    )
    whole = state.observe(decisions)
    assert through_json == whole
    assert through_json.to_json() == whole.to_json()


@pytest.mark.parametrize("name", STATES)
def test_one_at_a_time_is_the_same_too(name):
    decisions = some_decisions(11, 60)
    one_by_one = reduce(
        lambda before, piece: before.observe(piece), pieces(decisions, list(range(1, 60))), STATES[name]
    )
    assert one_by_one == STATES[name].observe(decisions)


@pytest.mark.parametrize("name", STATES)
def test_a_state_stays_small(name):
    long_run = STATES[name].observe(some_decisions(3, 5000))
    assert len(long_run.to_json()) < 3500 + (60 * KEPT if name in ("risk alarm", "selective alarm") else 0)


@pytest.mark.parametrize("name", STATES)
def test_reading_nothing_changes_nothing(name):
    state = STATES[name].observe(some_decisions(3, 50))
    assert state.observe(some_decisions(3, 0)) == state


@pytest.mark.parametrize("name", STATES)
def test_what_is_no_such_state_is_refused(name):
    state = STATES[name]
    fields = json.loads(state.to_json())
    texts = ["[]", "{}", "null", '{"kind": "other"}', state.to_json().replace("0.1", "NaN"), "[" * 100_000]
    for field in fields:
        texts += [json.dumps({**fields, field: wrong}) for wrong in ("x", True)]
        texts.append(json.dumps({key: value for key, value in fields.items() if key != field}))
    for text in texts:
        with pytest.raises(ValueError, match=r"."):
            state.from_json(text)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("exposure", {"decisions": -1}),
        ("exposure", {"drawn": 3}),
        ("exposure", {"shipped": 1.0}),
        ("exposure", {"lower_evidence": {"total": 0.0, "spread": -1.0}}),
        ("risk alarm", {"tolerance": 0.95}),
        ("risk alarm", {"alpha": 0.0}),
        ("drift alarm", {"edges": [1.0, 0.0]}),
        ("drift alarm", {"counts": [1]}),
    ],
)
def test_numbers_that_contradict_one_another_are_refused(name, change):
    fields = {**json.loads(STATES[name].to_json()), **change}
    with pytest.raises(ValueError, match=r"must|but"):
        STATES[name].from_json(json.dumps(fields))


@pytest.mark.parametrize(
    "change",
    [{"seen": -1}, {"stakes": [0.0]}, {"stakes": []}, {"raised_at": 3}, {"restart_every": 0}, {"delta": 1.0}],
)
def test_bets_that_contradict_themselves_are_refused(change):
    for name in ("draw alarm", "drift alarm"):
        fields = json.loads(STATES[name].to_json())
        fields["bets"].update(change)
        with pytest.raises(ValueError, match=r"must|but|expected"):
            STATES[name].from_json(json.dumps(fields))


@pytest.mark.parametrize(
    "change",
    [
        {"draws": -1},
        {"stakes": [0.0]},
        {"stakes": [-1.0] * 5},
        {"raised_at": 3},
        {"raised_at": 0, "tail": [[1, 0.3, 1.0, None, 0.0]]},
        {"false_every": 0},
        {"delta": 1.0},
        {"tail": [[1, 0.3, 1.0, 0.5]]},
        {"tail": [[1, 0.3, 1.0, 1.5, 0.0]]},
        {"tail": [[1, 0.0, 1.0, None, 0.0]]},
        {"tail": [[1, 0.3, 0.0, None, 0.0]]},
        {"tail": [[2, 0.3, 1.0, None, 0.0], [2, 0.3, 1.0, None, 0.0]]},
        {"tail": [3]},
    ],
)
def test_bets_on_draws_that_contradict_themselves_are_refused(change):
    for name in ("risk alarm", "selective alarm"):
        fields = json.loads(STATES[name].to_json())
        fields["bets"].update(change)
        with pytest.raises(ValueError, match=r"must|but|needs|has|come in order"):
            STATES[name].from_json(json.dumps(fields))
