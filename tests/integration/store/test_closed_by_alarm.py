"""At a gate that an alarm closed: the advice can be followed, and a question about its past says what it leaves out."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from streamer.events.alerts import alert
from streamer.gates.policy import MONITOR
from streamer.gates.rule import Cut
from streamer.recalibration.run import NothingToCalibrate
from streamer.settings.settings import Settings
from streamer.store.risk.incident_story import story_of
from streamer.whatif import Change
from streamer.whatif.words import caveats
from streamer.wiring import tried_gate, what_if
from tests.integration.console.conftest import propose
from tests.integration.store.conftest import START, World
from tests.integration.store.labelled_gate import GATE, LabelledGate, bad_below


def test_the_advice_is_what_the_gate_needs(new_world: Callable[..., World]) -> None:
    gate = LabelledGate(new_world())
    gate.label(gate.decide(300)[14:], bad_below(0.3))
    gate.open()
    gate.store.policies.close(GATE, by=MONITOR, reason="risk alarm 1", now=gate.clock())
    gate.store.alerts.raise_(alert(GATE, "risk", "alarm 1", message="Look.", raised_at=gate.now))

    assert gate.store.alerts.doubt(GATE).startswith("An alarm stands since 2026-11-")

    def steps(told: str) -> list[str | None]:
        found = story_of(gate.store, gate.store.alerts.incident(GATE), now=gate.now).steps
        assert f"from policy 3 on: {told}, at least 9 wanted." in found[0].what
        return [one.act for one in found]

    assert steps("0 drawn, 0 of them labelled") == [None, "rollback"]
    with pytest.raises(NothingToCalibrate, match="decided since an alarm closed it"):
        gate.open()
    since = gate.decide(12)
    assert steps("12 drawn, 0 of them labelled") == ["label", "rollback"]
    gate.label(since, bad_below(0.3))
    assert steps("12 drawn, 12 of them labelled") == [None, "recalibrate", "rollback"]
    propose(gate)
    assert steps("12 drawn, 12 of them labelled") == [None, "proposal", "rollback"]

    gate.store.alerts.raise_(alert(GATE, "missing", "alarm 2", message="Look.", raised_at=gate.now))
    first = story_of(gate.store, gate.store.alerts.incident(GATE), now=gate.now).steps[0]
    assert first.act == "label"
    assert first.what == "Label 14 answers that wait: only they tell whether what went out was wrong."
    gate.open()


def test_a_question_says_what_labels_it_leaves_out(new_world: Callable[..., World]) -> None:
    gate = LabelledGate(new_world())
    gate.label(gate.decide(200), bad_below(0.2))
    gate.open()
    gate.start += timedelta(days=2)
    gate.label(gate.decide(80)[:60], lambda _: 0.75)
    now, since = gate.start + timedelta(hours=2), START - timedelta(days=1)
    settings = gate.store.gates.get(GATE).settings
    first = tried_gate(Settings(), gate.store, GATE, settings, since=since, now=now)[2][0]
    compared = (
        "60 labelled answers among the younger average 75 % wrong, against 20 % among those that count."
    )
    assert first == f"80 drawn prompts are left out, being younger than 24 hours. The {compared}"
    answer = what_if(gate.store, GATE, since=since, now=now).ask(Change(cut=Cut.at(0.5)))
    assert any(one.endswith(compared) for one in caveats(answer))
