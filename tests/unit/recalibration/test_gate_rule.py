"""The gate's rule, as a table: what becomes of a run that the service made by itself."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from streamer.gates.policy import MONITOR, Policy
from streamer.gates.rule import INDICATOR, Cut, Segments
from streamer.gates.settings import GateSettings
from streamer.recalibration.comparison import Reading
from streamer.recalibration.gate_rule import (
    Closing,
    Comparison,
    Held,
    closing,
    hold,
    least_new_groups,
    verdict,
)
from tests.made import a_policy

AUTO = GateSettings(encoder="e@1", recalibrate="auto", least_groups=100)
SAME = Comparison(
    direction="same", lambda_step=0.0, ship_rates=(0.5, 0.5), labelled_groups=500, new_groups=200
)
TIGHTER = replace(SAME, direction="tighter", lambda_step=0.05, ship_rates=(0.5, 0.45))
LOOSER = replace(SAME, direction="looser", lambda_step=0.05, ship_rates=(0.5, 0.55))
SERVED = Reading(Cut("cut", 0.7), INDICATOR)


@pytest.mark.parametrize("rule", ["propose", "auto"])
def test_what_is_in_force_already_changes_nothing(rule: Any) -> None:
    settings = replace(AUTO, recalibrate=rule)
    assert verdict(settings, SAME).outcome == "unchanged"
    said = verdict(settings, SAME, closed=Closing(by="calibration", served=None))
    assert said.outcome == "unchanged"
    assert "nothing ships either way" in said.why


@pytest.mark.parametrize("found", [TIGHTER, LOOSER])
def test_under_propose_everything_waits_for_a_person(found: Comparison) -> None:
    said = verdict(replace(AUTO, recalibrate="propose"), found)
    assert (said.outcome, said.why) == ("proposed", "the gate's rule is propose")


@pytest.mark.parametrize(
    ("changes", "large"),
    [
        ({}, False),
        ({"labelled_groups": 1, "new_groups": 0}, False),
        ({"lambda_step": 0.11}, True),
        ({"ship_rates": (0.9, 0.2)}, True),
        ({"lambda_step": float("inf"), "ship_rates": (0.9, 0.0)}, True),
    ],
)
def test_holding_more_acts_at_once_and_is_told_when_it_is_much(changes: dict[str, Any], large: bool) -> None:
    said = verdict(AUTO, replace(TIGHTER, **changes))
    assert (said.outcome, said.large, said.worst_label) == ("applied", large, False)
    assert ("beyond the limits" in said.why) == large


LOOSENING = [
    # what is different from a looser run within every limit; what stands against it
    ({}, None),
    ({"labelled_groups": 99}, "99 groups have a label, at least 100 must"),
    ({"labelled_groups": 100, "new_groups": 50}, None),
    ({"new_groups": 49}, "49 of its labelled groups are new"),
    ({"lambda_step": 0.1}, None),
    ({"lambda_step": 0.1001}, "the threshold would move by 0.1001, at most 0.1"),
    ({"lambda_step": float("inf")}, "the threshold would move without bound"),
    ({"ship_rates": (0.5, 0.61)}, "the share that ships would go from 0.5 to 0.61"),
    ({"direction": "same"}, "it would not with the highest severities"),
    ({"direction": "tighter"}, "it would not with the highest severities"),
]


@pytest.mark.parametrize(("changes", "against"), LOOSENING)
def test_holding_less_acts_only_when_nothing_stands_against_it(
    changes: dict[str, Any], against: str | None
) -> None:
    said = verdict(AUTO, LOOSER, worst_label=replace(LOOSER, **changes))
    assert said.outcome == ("applied" if against is None else "proposed")
    assert said.worst_label == (against is None)
    assert against is None or against in said.why
    assert not said.large


def test_only_the_run_on_worst_labels_counts_for_the_limits() -> None:
    far = replace(LOOSER, lambda_step=0.4, ship_rates=(0.5, 0.9))
    assert verdict(AUTO, far, worst_label=LOOSER).worst_label


def test_everything_that_stands_against_it_is_said_at_once() -> None:
    poor = replace(LOOSER, labelled_groups=3, new_groups=1, lambda_step=0.5, ship_rates=(0.1, 0.9))
    why = verdict(AUTO, LOOSER, worst_label=poor).why
    assert all(
        part in why
        for part in (
            "3 groups have a label",
            "1 of its labelled",
            "the threshold would move",
            "share that ships",
        )
    )


@pytest.mark.parametrize(
    ("by", "changes", "safely", "outcome"),
    [
        ("person", {}, True, "proposed"),
        ("nobody", {}, False, "applied"),
        ("nobody", {"lambda_step": 0.4}, False, "proposed"),
        ("calibration", {"ship_rates": (0.0, 0.4)}, False, "proposed"),
        # After an alarm the limits on a step mean nothing: any opening is a large one.
        ("alarm", {"lambda_step": 0.4, "ship_rates": (0.0, 0.6)}, True, "applied"),
        ("alarm", {"lambda_step": 0.4, "ship_rates": (0.0, 0.6)}, False, "proposed"),
        ("alarm", {"labelled_groups": 99}, True, "proposed"),
        ("alarm", {"new_groups": 49}, True, "proposed"),
        ("alarm", {"direction": "same"}, True, "proposed"),
    ],
)
def test_who_closed_the_gate_decides_who_may_open_it(
    by: Any, changes: dict[str, Any], safely: bool, outcome: str
) -> None:
    said = verdict(
        AUTO,
        LOOSER,
        closed=Closing(by=by, served=SERVED),
        worst_label=replace(LOOSER, **changes),
        safely_reopened=safely,
    )
    assert said.outcome == outcome
    if by == "person":
        assert "a person closed the gate" in said.why


@pytest.mark.parametrize(
    ("alarms", "by", "against"),
    [
        ((), None, None),
        (("risk",), None, "the risk alarm stands"),
        (("selective",), None, "the selective-risk alarm stands"),
        (("selective",), "alarm", None),
        (("draws",), None, "the alarm on the audit's draws stands"),
        # The alarm that closed the gate is answered by what was decided since; doubted draws are not.
        (("risk",), "alarm", None),
        (("drift_scores",), None, "a drift alarm stands"),
        (("drift_scores", "risk"), "alarm", None),
        (("risk", "draws"), "alarm", "the alarm on the audit's draws stands"),
        (("risk",), "calibration", "the risk alarm stands"),
    ],
)
def test_while_an_alarm_stands_nothing_is_loosened_by_itself(
    alarms: tuple[str, ...], by: Any, against: str | None
) -> None:
    closed = None if by is None else Closing(by=by, served=SERVED)
    said = verdict(AUTO, LOOSER, closed=closed, worst_label=LOOSER, safely_reopened=True, alarms=alarms)
    assert said.outcome == ("applied" if against is None else "proposed")
    assert against is None or against in said.why


@pytest.mark.parametrize("direction", ["tighter", "same"])
def test_an_alarm_keeps_nothing_from_holding_more(direction: Any) -> None:
    found = replace(LOOSER, direction=direction)
    assert verdict(AUTO, found, alarms=("risk", "draws")) == verdict(AUTO, found)


def test_a_looser_run_is_never_judged_alone() -> None:
    with pytest.raises(ValueError, match="beside that on worst labels"):
        verdict(AUTO, LOOSER)


def test_half_of_the_groups_rounded_up_must_be_new() -> None:
    assert [least_new_groups(replace(AUTO, least_groups=n)) for n in (1, 2, 3, 100)] == [1, 1, 2, 50]


# -- who closed a gate ---------------------------------------------------------------------------------------


def policies(*steps: dict[str, Any]) -> list[Policy]:
    """Versions one after the other: each says what is different from the one before."""
    present = a_policy(AUTO, version=0, state="closed", calibrated=False)
    found = []
    for step in steps:
        present = replace(present, version=present.version + 1, created_by="ana")
        present = replace(present, **step)
        found.append(present)
    return found


CREATED: dict[str, Any] = {}
OPENED = {"state": "cut", "threshold": 0.7, "calibrated": True, "calibration_run": 1}
CLOSED = {"state": "closed", "threshold": None, "calibration_run": None, "rule": INDICATOR}
BY_ALARM = CLOSED | {"created_by": MONITOR}
FOUND_CLOSED = CLOSED | {"calibration_run": 2, "calibrated": True}
REVISED = {"gate_revision": 2, "settings": replace(AUTO, mode="enforce")}
ANOTHER = CLOSED | {"gate_revision": 3, "settings": replace(AUTO, alpha=0.2), "calibrated": False}


@pytest.mark.parametrize(
    ("steps", "by", "served"),
    [
        ((CREATED,), "nobody", None),
        ((CREATED, OPENED), None, None),
        ((CREATED, FOUND_CLOSED), "calibration", None),
        ((CREATED, CLOSED), "person", None),
        ((CREATED, OPENED, CLOSED), "person", 0.7),
        ((CREATED, OPENED, BY_ALARM), "alarm", 0.7),
        ((CREATED, OPENED, BY_ALARM, REVISED), "alarm", 0.7),
        ((CREATED, OPENED, BY_ALARM, FOUND_CLOSED), "alarm", 0.7),
        ((CREATED, OPENED, BY_ALARM, CLOSED), "person", 0.7),
        ((CREATED, OPENED, CLOSED, BY_ALARM), "person", 0.7),
        ((CREATED, OPENED, CLOSED, FOUND_CLOSED), "person", 0.7),
        ((CREATED, OPENED, CLOSED, OPENED, BY_ALARM), "alarm", 0.7),
        ((CREATED, FOUND_CLOSED, OPENED, FOUND_CLOSED), "person", 0.7),  # rolled back to
        ((CREATED, OPENED, FOUND_CLOSED, REVISED), "calibration", 0.7),
        ((CREATED, OPENED, ANOTHER), "nobody", None),
        ((CREATED, OPENED, BY_ALARM, ANOTHER), "alarm", None),
        ((CREATED, OPENED, BY_ALARM, OPENED), None, None),
    ],
)
def test_who_closed_a_gate_is_read_from_its_policies(
    steps: tuple[dict[str, Any], ...], by: str | None, served: float | None
) -> None:
    found = closing(policies(*steps))
    assert (None if found is None else found.by) == by
    if found is not None:
        assert (None if found.served is None else found.served.cut.threshold) == served


def test_a_gate_with_a_segment_that_ships_is_not_closed() -> None:
    rule = Segments("language", (("en", Cut("cut", 0.5)),))
    assert closing(policies(CREATED, FOUND_CLOSED | {"rule": rule})) is None


@pytest.mark.parametrize(
    ("known", "against"),
    [
        ({"evidence": 0.09}, None),
        ({"evidence": 0.1}, "the risk alarm's evidence is 0.1, it must be below 0.1"),
        ({"worse": "of 9 pairs ..."}, "the newest groups are worse: of 9 pairs ..."),
        ({"alarms": {"drift_scores"}}, "a drift alarm stands"),
        ({"unskilled": "no skill"}, None),
    ],
)
def test_what_a_looser_threshold_is_tested_by(known: dict[str, Any], against: str | None) -> None:
    said = verdict(AUTO, LOOSER, worst_label=LOOSER, **known)
    assert said.outcome == ("applied" if against is None else "proposed")
    assert against is None or against in said.why


def test_without_skill_no_gate_opens_by_itself() -> None:
    closed = Closing(by="calibration", served=None)
    opened = verdict(AUTO, LOOSER, worst_label=LOOSER, closed=closed, evidence=3.0)
    assert opened.outcome == "applied", "what an alarm read of a closed gate says nothing"
    said = verdict(AUTO, LOOSER, worst_label=LOOSER, closed=closed, unskilled="no skill")
    assert (said.outcome, "no skill: a gate does not open by itself then" in said.why) == ("proposed", True)
    proposed = verdict(replace(AUTO, recalibrate="propose"), LOOSER, closed=closed, unskilled="no skill")
    assert proposed.why == "the gate's rule is propose; no skill"


def test_a_wait_begins_once_and_ends() -> None:
    applied = verdict(AUTO, LOOSER, worst_label=LOOSER)
    now, lag = datetime(2026, 11, 20, tzinfo=UTC), timedelta(hours=6)
    held = hold(applied, now=now, since=None, lag=lag)
    assert (held.outcome, held.held_until) == ("proposed", now + lag)
    wait = Held(run=7, until=now + lag)
    assert hold(applied, now=now + lag / 2, since=wait, lag=lag).held_until == now + lag
    over = hold(applied, now=now + lag, since=wait, lag=lag)
    assert (over.outcome, "since run 7" in over.why) == ("applied", True)
    assert hold(applied, now=now, since=None, lag=timedelta(0)) == applied, "labels come at once"
