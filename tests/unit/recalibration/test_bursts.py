"""Bursts: what names one, and which of its batches calibration counts."""

from dataclasses import replace
from datetime import timedelta

import pytest

from streamer.gates.policy import Bursts, burst_of
from streamer.gates.policy_gate import PolicyGate
from streamer.gates.rule import INDICATOR, Cut
from streamer.gates.settings import GateSettings
from streamer.gates.uniforms import uniform_of
from streamer.recalibration.sampled import SampledGroup, bad_bursts, one_of_each
from tests.made import a_sampled_prompt
from tests.unit.deciding.test_decider import NOW

SALT = bytes(32)


def group(number: int, burst: str | None, *, minutes: int) -> SampledGroup:
    at = NOW + timedelta(minutes=minutes)
    return a_sampled_prompt(("bot", f"b{number}"), [("a", 0.5, None)], decided_at=at, burst=burst)


@pytest.mark.parametrize(
    ("prompt", "metadata", "key", "burst"),
    [
        ("Where is  my\nparcel?", {}, "prompt", "where is my parcel?"),
        ("ＷＨＥＲＥ is my parcel? ", {}, "prompt", "where is my parcel?"),
        ("  ", {}, "prompt", None),
        ("Where?", {"session": "s 1"}, "session", "s 1"),
        ("Where?", {"session": 7}, "session", "7"),
        ("Where?", {"session": ["s"]}, "session", None),
        ("Where?", {}, "session", None),
    ],
)
def test_what_names_a_burst(prompt: str, metadata: dict[str, object], key: str, burst: str | None) -> None:
    assert burst_of(prompt, metadata, key) == burst


def test_of_each_burst_the_first_by_draw_counts_of_those_that_are_old_enough() -> None:
    groups = [group(n, "ab"[n % 2], minutes=n - 20) for n in range(20)]
    groups += [group(n, "c", minutes=n) for n in range(20, 23)] + [group(23, "a", minutes=1)]
    groups += [group(24, None, minutes=-1), group(25, None, minutes=1)]
    made = one_of_each(groups, SALT, NOW)
    assert [replace(one, spare=False) for one in made] == groups
    counts = [one for one in made if not one.spare]
    assert sorted(str(one.burst) for one in counts) == ["None", "None", "a", "b", "c"]
    for one in counts:
        alike = [
            other for other in groups if other.burst == one.burst is not None and other.decided_at < NOW
        ] or [other for other in groups if other.burst == one.burst]
        if one.burst is not None:
            assert uniform_of(SALT, one.key, "burst") == min(
                uniform_of(SALT, other.key, "burst") for other in alike
            )
    others = one_of_each(groups, b"\x01" * 32, NOW)
    assert [one.spare for one in others] != [one.spare for one in made], "the draw is the gate's"


def test_a_gate_that_keeps_no_texts_knows_no_bursts() -> None:
    with pytest.raises(ValueError, match="group_by goes with keep_texts"):
        GateSettings(encoder="e@1", group_by="prompt", keep_texts=False)


def test_a_burst_is_bad_by_a_label_that_counts_as_bad_and_not_by_a_missing_one() -> None:
    labelled = [("a", 0.0), ("b", 1.0), ("b", 0.0), ("c", None), (None, 1.0)]
    groups = [
        replace(one, items=(replace(one.items[0], severity=severity),))
        for n, (burst, severity) in enumerate(labelled)
        for one in [group(n, burst, minutes=-1)]
    ]
    assert bad_bursts(groups, SALT) == {"b": ["b1#1"]}
    halves = [replace(group(n, f"burst {n}", minutes=-1), bad=n < 2) for n in range(4)]
    halves = [replace(one, items=(replace(one.items[0], severity=0.5),)) for one in halves]
    assert bad_bursts(halves, SALT).keys() == {"burst 0", "burst 1"}, "a half counts by its draw"


def test_of_a_burst_with_a_bad_label_nothing_ships_but_by_that_prompt_itself() -> None:
    bursts = Bursts("session", b"secret", {})
    named = bursts.name("Where?", {"session": "s"})
    assert named not in (
        None,
        bursts.name("Where?", {"session": "t"}),
        Bursts("session", b"other", {}).name("", {"session": "s"}),
    )
    assert bursts.name("Where?", {}) is None
    assert Bursts("session", None, {}).name("", {"session": "s"}) is None, "its secret was erased"
    known = replace(bursts, bad={named: ["b1#1"]})

    def ships(cut: Cut | None = None, **given: str | None) -> tuple[bool, bool]:
        gate = PolicyGate(unit="best", cut=cut or Cut("cut", 0.5), rule=INDICATOR, bursts=known)
        ruling = gate.decide([0.9, 0.4], **given)
        return any(ruling.gate.shipped), ruling.bad_burst

    assert ships() == ships(burst=bursts.name("", {"session": "t"})) == (True, False)
    assert ships(burst=named) == (False, True)
    assert ships(burst=named, prompt="b1#1") == (True, False), "in what-if its own label says nothing of it"
    assert ships(burst=named, prompt="b2#1") == (False, True)
    assert ships(Cut("closed", None), burst=named) == (False, False), "a closed gate says that it is closed"
