"""When the audit probability is raised, until when, and why it is not."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from streamer.gates.audit_rate import AuditRate, probability_under
from streamer.gates.policy import Policy
from streamer.gates.settings import GateSettings
from streamer.risk.rounds.alarm_terms import opened
from streamer.risk.rounds.audit_rates import LASTS, YOUNG_DRAWS, next_rate
from streamer.risk.rounds.report import Drawing
from streamer.risk.rounds.state import GateWatch, WatchedAlarm
from streamer.risk.states import Draw
from tests.made import a_policy

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SETTINGS = GateSettings(encoder="e", audit_probability=0.05)


class _Evidence:
    """The alarm's state, with the evidence that a test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.value = 0.0
        kind = type(opened("risk", SETTINGS, after=0).state)
        monkeypatch.setattr(kind, "known_evidence", property(lambda _: self.value))


@pytest.fixture
def evidence(monkeypatch: pytest.MonkeyPatch) -> _Evidence:
    return _Evidence(monkeypatch)


def policy(settings: GateSettings = SETTINGS, **changes: Any) -> Policy:
    return a_policy(settings, **{"version": 2, "valid_from": NOW} | changes)


def after(
    present: AuditRate | None = None,
    *,
    extra: int = 0,
    now: datetime = NOW,
    has_read: bool = True,
    made: Policy | None = None,
    read: int = YOUNG_DRAWS,
    **alarm: Any,
) -> AuditRate | None:
    watched: WatchedAlarm = opened("risk", SETTINGS, after=0)
    draws = [Draw(n, 0.1, loss=0.0) for n in range(read)]
    watched = replace(watched, **({"state": watched.state.observe(draws)} | alarm))  # type: ignore[union-attr]
    watch = GateWatch(gate="g", alarms=(watched,))
    return next_rate(present, extra, watch=watch, policy=made or policy(), has_read=has_read, now=now)


def test_evidence_raises_it_and_its_end_lowers_it(evidence: _Evidence) -> None:
    evidence.value = 0.1999
    assert after() is None
    evidence.value = 0.2
    assert after(read=YOUNG_DRAWS - 1) is None, "evidence begins near one half"
    raised = after()
    assert (raised.boosted, raised.until, raised.evidence) == (True, NOW + LASTS, 0.2)
    assert after(raised, now=NOW + LASTS / 4) is None, "nothing is written while it is right"
    evidence.value = 0.05
    ended = after(raised, now=NOW + LASTS / 4)
    assert not ended.boosted
    assert "0.05, below 0.2" in ended.reason
    assert not ended.raises(NOW - LASTS), "whatever a worker's clock says"
    assert after(ended, now=NOW + LASTS / 2) is None


def test_without_traffic_it_ends_by_itself(evidence: _Evidence) -> None:
    evidence.value = 0.5
    assert after(has_read=False) is None
    present = after()
    assert present is not None
    shown = Drawing.of(present, 0, SETTINGS, NOW)
    assert (shown.probability, shown.at(NOW + LASTS).probability) == (0.2, 0.05)
    assert after(present, now=NOW + 2 * LASTS, has_read=False) is None
    assert after(present, now=NOW + 2 * LASTS) is not None


def test_it_is_raised_anew_before_it_ends_and_never_across_midnight(evidence: _Evidence) -> None:
    evidence.value = 1.0
    present = after()
    moment, written = NOW, 1
    while present is not None and moment < NOW + timedelta(hours=12):
        assert present.raises(moment), "without a gap"
        assert present.until <= NOW + timedelta(hours=12)
        moment += timedelta(seconds=5)
        present = (following := after(present, now=moment)) or present
        written += following is not None
    assert written <= 25
    assert present.until > NOW + timedelta(hours=12), "the next day has a rate of its own"


@pytest.mark.parametrize(
    ("changes", "alarm", "reason"),
    [
        ({"made": policy(replace(SETTINGS, audit_boost=None))}, {}, "raise its audit probability no more"),
        ({"made": policy(replace(SETTINGS, audit_probability=1.0))}, {}, "no more"),
        ({"made": policy(state="closed")}, {}, "ships nothing"),
        ({}, {"raised_by": 7, "raised_at": NOW}, "needs no more evidence"),
        ({"extra": 400}, {}, "the 400 extra labels that the gate allows for today are asked for"),
    ],
)
def test_what_ends_it_in_spite_of_evidence(
    evidence: _Evidence, changes: Any, alarm: Any, reason: str
) -> None:
    evidence.value = 5.0
    assert after(**changes | {"extra": 0}, **alarm) is None or "extra" in changes
    present = after()
    assert present is not None
    ended = after(present, now=NOW + LASTS / 4, **changes, **alarm)
    assert not ended.boosted
    assert reason in ended.reason
    assert after(ended, now=NOW + LASTS / 2, **changes, **alarm) is None


def test_the_cap_is_of_a_day(evidence: _Evidence) -> None:
    evidence.value = 5.0
    present = after()
    assert present is not None
    ended = after(present, extra=412, now=NOW + LASTS / 4)
    assert ended.extra == 412
    shown = Drawing.of(ended, 412, SETTINGS, NOW + LASTS)
    assert (shown.probability, shown.extra_today, shown.most) == (0.05, 412, 400)
    tomorrow = NOW + timedelta(hours=12)
    again = after(ended, extra=412, now=tomorrow)
    assert (again.boosted, again.extra) == (True, 0)
    assert Drawing.of(ended, 412, SETTINGS, tomorrow).extra_today == 0
    assert Drawing.of(again, 0, SETTINGS, tomorrow).probability == 0.2


def test_the_probability_under_a_rate() -> None:
    rate = AuditRate(number=3, boosted=True, since=NOW, until=NOW + LASTS, evidence=1, extra=0, reason="why")

    def at(moment: datetime = NOW, attempt: int = 1, **changes: Any) -> tuple[float, int | None]:
        return probability_under(rate, replace(SETTINGS, **changes), attempt=attempt, at=moment)

    assert at() == (0.2, 3)
    assert at(audit_probability=0.4) == (1.0, 3)
    assert at(audit_boost=2.5) == (0.125, 3)
    for base in (
        at(NOW + LASTS),
        at(attempt=2),
        at(audit_boost=None),
        probability_under(None, SETTINGS, attempt=1, at=NOW),
    ):
        assert base == (0.05, None)
    assert at(audit_probability=1.0) == (1.0, None)
    assert at(audit_probability=0.0) == (0.0, None)
