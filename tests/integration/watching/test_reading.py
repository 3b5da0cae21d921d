"""What watching reads of the record, when, and that it equals the mathematics on the same decisions to the last bit."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from streamer.journal import BatchDecision
from streamer.risk.rounds.alarm_terms import chance_of
from streamer.risk.states import (
    AuditedDecision,
    AuditedDecisions,
    DrawAlarm,
    ExposurePlan,
    ExposureSequence,
    RiskAlarm,
)
from streamer.risk.states.drawn_bets import KEPT
from tests.integration.watching.conftest import DAY, GATE, MINUTE, START, Shown, Traffic
from tests.unit.monitoring.streams import draws_of


def audited(
    decisions: Sequence[BatchDecision], severities: dict[str, float], labelled: set[str] | None = None
) -> AuditedDecisions:
    """What the mathematics is to be given, written down independently of the code under test."""
    rows = []
    for one in decisions:
        ships = one.outcome == "ship"
        known = labelled is None or one.key.batch_id in labelled
        loss = None
        if one.sampled:
            loss = 0.0 if not ships else severities[one.key.batch_id] if known else None
        rows.append(
            AuditedDecision(
                one.sampling_probability, sampled=one.sampled, loss=loss, shipped=1.0 if ships else 0.0
            )
        )
    return AuditedDecisions.of_pieces(rows)


def fresh_sequence(traffic: Traffic) -> ExposureSequence:
    settings = traffic.settings()
    return ExposureSequence(
        plan=ExposurePlan(
            delta=settings.monitor_delta,
            least_probability=settings.audit_probability,
            prior_mean=settings.alpha,
        )
    )


def fresh_alarm(traffic: Traffic, number: int = 1) -> RiskAlarm:
    settings = traffic.settings()
    return RiskAlarm.open(
        alpha=settings.alpha,
        delta=chance_of(settings.alarm_delta, number),
        tolerance=settings.alarm_tolerance * settings.alpha,
        false_every=settings.alarm_false_every,
    )


def some_severities(traffic: Traffic, rng: np.random.Generator, mean: float = 0.05) -> dict[str, float]:
    return {one.key.batch_id: float(rng.beta(2 * mean, 2 * (1 - mean))) for one in traffic.made}


@pytest.mark.parametrize(("page", "pages"), [(7, 3), (500, 10), (1, 400)])
def test_however_rounds_are_cut_the_states_are_those_of_the_mathematics(
    light_traffic: Callable[..., Traffic], page: int, pages: int
) -> None:
    are_those_of_the_mathematics(light_traffic(), page, pages)


def test_on_either_database_the_states_are_those_of_the_mathematics(
    new_traffic: Callable[..., Traffic],
) -> None:
    are_those_of_the_mathematics(new_traffic(), 40, 3)


def are_those_of_the_mathematics(traffic: Traffic, page: int, pages: int) -> None:
    rng = np.random.default_rng(1)
    traffic.decide(60, rng=rng, shipped=0.7)
    traffic.decide(3, rng=rng, number=0, scores=None, actions=("abstain", "abstain"), sampled=False,
                   sampling_probability=0.0, reason="scorer_failed")  # fmt: skip
    traffic.decide(40, rng=rng, shipped=0.7)
    severities = some_severities(traffic, rng)
    first, rest = traffic.made[:50], traffic.made[50:]
    watcher = traffic.watcher(page=page, pages=pages)
    traffic.label(first, severities)
    rounds = 2 + 103 // (page * pages)
    for _ in range(rounds):
        watcher.watch(GATE, now=START + DAY / 2)
    traffic.label(rest, severities)
    for _ in range(rounds):
        report = watcher.watch(GATE, now=START + DAY / 2)
    assert report is not None
    watch = traffic.store.monitoring.watch(GATE)
    logged = audited(traffic.made[:60] + traffic.made[63:], severities)
    # What was held without scores counts as a decision that lost nothing; its place among the others is kept.
    unscored = AuditedDecisions.of_pieces([AuditedDecision(0.5, sampled=False, shipped=0.0)] * 3)
    expected = fresh_sequence(traffic)
    alarm = fresh_alarm(traffic)
    for some in (_part(logged, 0, 60), unscored, _part(logged, 60, 100)):
        expected = expected.observe(some)  # the alarm reads draws alone
    alarm = alarm.observe(draws_of(logged, alarm.theta))
    assert watch.sequence.state == expected
    assert report.exposure == expected.exposure()
    assert report.selective == expected.selective()
    risk, draws = watch.alarm("risk"), watch.alarm("draws")
    assert risk.state.evidence == alarm.evidence
    assert draws.state == DrawAlarm.open(delta=chance_of(0.05, 1)).observe(logged)
    assert (watch.read, watch.seen, watch.bet) == (103, 103, 103)


def _part(decisions: AuditedDecisions, start: int, stop: int) -> AuditedDecisions:
    fields: dict[str, Any] = {
        name: getattr(decisions, name)[start:stop] for name in AuditedDecisions.__dataclass_fields__
    }
    return AuditedDecisions(**fields)


def test_a_decision_waits_for_its_label_and_holds_up_the_rest_until_it_is_overdue(
    new_traffic: Callable[..., Traffic],
) -> None:
    rng = np.random.default_rng(2)
    traffic = new_traffic(audit_probability=1.0)
    traffic.decide(10, rng=rng)
    severities = some_severities(traffic, rng)
    watcher = traffic.watcher()
    traffic.label(traffic.made[:4] + traffic.made[5:], severities)
    report = watcher.watch(GATE, now=START + timedelta(hours=1))
    assert report.exposure.decisions == 4
    assert report.read_through == START + 4 * MINUTE
    # One day after it was decided it is overdue: 0 in the lower bound, 1 in the upper one.
    report = watcher.watch(GATE, now=START + DAY + 4 * MINUTE)
    assert report is not None
    expected = fresh_sequence(traffic).observe(
        audited(traffic.made, severities, {one.key.batch_id for one in traffic.made} - {"b0-4"})
    )
    assert report.exposure == expected.exposure()
    assert (report.exposure.overdue, report.late) == (1, 0)
    # What comes now is late, and flipping what was read changes nothing.
    traffic.label(traffic.made[4:5], severities, at=START + 2 * DAY)
    traffic.label(traffic.made[5:7], lambda _: 1.0, at=START + 2 * DAY)
    report = watcher.watch(GATE, now=START + 2 * DAY)
    assert report.exposure == expected.exposure()
    assert report.late == 3
    # The same once more changes nothing, and is not late.
    traffic.label(traffic.made[:5], severities, at=START + 3 * DAY)
    assert watcher.watch(GATE, now=START + 3 * DAY).late == 3


def test_only_labels_of_what_was_drawn_and_of_the_gates_kind_are_used(
    new_traffic: Callable[..., Traffic],
) -> None:
    rng = np.random.default_rng(3)
    traffic = new_traffic()
    traffic.decide(80, rng=rng, shipped=0.8)
    severities = some_severities(traffic, rng)
    traffic.label(traffic.made, severities)
    # Complaints about what was not drawn, other responses of what was, another kind, another attempt, dated ahead.
    undrawn = [one for one in traffic.made if not one.sampled]
    traffic.label(undrawn, lambda _: 1.0, everyone=True, labeller="complaint")
    traffic.label(traffic.made, lambda _: 1.0, response_id="a")
    traffic.label(traffic.made, lambda _: 1.0, kind="rumour")
    traffic.label(
        traffic.made[:3], lambda one: severities[one.key.batch_id], at=START + 900 * DAY, received=START,
    )  # fmt: skip
    report = traffic.watcher().watch(GATE, now=START + DAY)
    assert report is not None
    expected = fresh_sequence(traffic).observe(audited(traffic.made, severities))
    assert report.exposure == expected.exposure()


def test_several_labellers_are_averaged_and_the_latest_of_each_counts(
    light_traffic: Callable[..., Traffic],
) -> None:
    traffic = light_traffic(audit_probability=1.0)
    traffic.decide(5, rng=np.random.default_rng(4))
    traffic.label(traffic.made, lambda _: 1.0, at=START)
    traffic.label(traffic.made, lambda _: 0.5, at=START + MINUTE)
    traffic.label(traffic.made, lambda _: 0.25, labeller="bo")
    report = traffic.watcher().watch(GATE, now=START + DAY)
    assert report is not None
    expected = fresh_sequence(traffic).observe(
        audited(traffic.made, {one.key.batch_id: 0.375 for one in traffic.made})
    )
    assert report.exposure == expected.exposure()


def test_without_an_audit_sample_nothing_is_watched(light_traffic: Callable[..., Traffic]) -> None:
    shown = Shown()
    traffic = light_traffic(audit_probability=0.0)
    traffic.decide(5, rng=np.random.default_rng(5))
    report = traffic.watcher(shown).watch(GATE, now=START + DAY)
    assert (report.watched, report.exposure, report.unwatched) == (False, None, 5)


def test_a_lower_probability_is_met_first_by_a_decision_without_scores(
    light_traffic: Callable[..., Traffic],
) -> None:
    rng = np.random.default_rng(8)
    traffic = light_traffic()
    traffic.label(traffic.decide(4, rng=rng), lambda _: 0.0)
    traffic.watcher().watch(GATE, now=START + 10 * MINUTE)
    traffic.store.gates.revise(GATE, {"audit_probability": 0.25}, by="ana", reason="fewer labels")
    traffic.policy = traffic.store.policies.newest(GATE)
    traffic.decide(2, rng=rng, scores=None, actions=("abstain", "abstain"), sampled=False,
                   sampling_probability=0.0, reason="scorer_failed")  # fmt: skip
    traffic.label(traffic.decide(4, rng=rng), lambda _: 0.0)
    traffic.watcher().watch(GATE, now=START + 10 * MINUTE)
    found = traffic.store.monitoring.sequences(GATE)
    wanted = [(None, 6), ("the audit probability was lowered", 4)]
    assert [(one.ended, one.state.decisions) for one in found] == wanted
    assert found[0].state.plan.least_probability == 0.25


def test_what_begins_a_new_sequence_and_what_does_not(new_traffic: Callable[..., Traffic]) -> None:
    rng = np.random.default_rng(6)
    traffic = new_traffic(audit_probability=1.0, budget_period_days=1.0)
    monitoring = traffic.store.monitoring

    def more(start: Any = START, **changes: Any) -> None:
        if changes:
            traffic.store.gates.revise(GATE, changes, by="ana", reason="")
            traffic.policy = traffic.store.policies.newest(GATE)
            traffic.open_gate()
        made = traffic.decide(4, rng=rng, start=start)
        traffic.label(made, lambda _: 0.0, kind=traffic.settings().severity_kind)
        traffic.watcher().watch(GATE, now=start + 10 * MINUTE)

    more()
    more(label_deadline_seconds=5.0)  # another policy
    more(audit_probability=1.0, label_deadline_seconds=6.0)
    assert len(monitoring.sequences(GATE)) == 1
    more(audit_probability=0.5)
    more(audit_probability=0.9)
    assert len(monitoring.sequences(GATE)) == 2
    more(alpha=0.1)
    more(severity_kind="judge")
    more(start=START + 5 * DAY)
    found = monitoring.sequences(GATE)
    assert [one.ended for one in reversed(found)] == [
        "the audit probability was lowered", "the gate was changed in what the interval is about",
        "the gate was changed in what the interval is about", "its budget period was over", None,
    ]  # fmt: skip
    assert [one.state.decisions for one in reversed(found)] == [12, 8, 4, 4, 4]
    assert found[0].began_at == found[1].began_at + 4 * DAY
    # Every change of what the loss is and of its budget is another alarm, with a smaller chance each.
    alarm = monitoring.watch(GATE).alarm("risk")
    assert (alarm.number, alarm.state.bets.delta) == (3, chance_of(0.05, 3))


def test_a_round_costs_the_same_early_and_late(light_traffic: Callable[..., Traffic]) -> None:
    """Counted instead of timed: statements, rows that they return, and what is kept."""
    import sqlalchemy as sa

    rng = np.random.default_rng(7)
    traffic = light_traffic()
    watcher = traffic.watcher(page=50)
    counted: list[int] = []

    def count(*_: Any) -> None:
        counted.append(1)

    def cost() -> tuple[int, int]:
        made = traffic.decide(50, rng=rng, sampled=True)
        traffic.label(made, lambda _: 0.0)
        engine = traffic.store._database.engine
        sa.event.listen(engine, "before_cursor_execute", count)
        counted.clear()
        watcher.watch(GATE, now=START + DAY)
        sa.event.remove(engine, "before_cursor_execute", count)
        watch = traffic.store.monitoring.watch(GATE)
        kept = watch.sequence.state.to_json() + "".join(one.state.to_json() for one in watch.alarms)
        return len(counted), len(kept)

    watcher.watch(GATE, now=START + DAY)
    for _ in range(KEPT // 50):
        cost()
    early = cost()
    for _ in range(20):
        cost()
    late = cost()
    assert late[0] == early[0]
    assert late[1] == pytest.approx(early[1], abs=3 * KEPT), "digits of larger numbers"
