"""With a judge that has seen everything that shipped, the interval reads its predictions; without, it goes on alone."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from streamer.journal import BatchDecision
from streamer.risk.rounds.reading import JUDGE_CAP, JUDGE_MISSING
from streamer.risk.states import AuditedDecision, AuditedDecisions
from tests.integration.watching.conftest import DAY, GATE, MINUTE, START, Traffic
from tests.integration.watching.test_reading import audited, fresh_sequence, some_severities


def judged(traffic: Traffic, decisions: Sequence[BatchDecision], marks: dict[str, float]) -> None:
    """A judge labels what shipped, drawn or not."""
    shipped = [one for one in decisions if one.outcome == "ship"]
    traffic.label(
        [msgspec.structs.replace(one, responses=one.responses[1:]) for one in shipped],
        lambda one: marks[one.key.batch_id], kind="judge", labeller="judge-1", everyone=True,
    )  # fmt: skip


def test_predictions_are_read_where_the_judge_has_seen_all_that_shipped(
    new_traffic: Callable[..., Traffic],
) -> None:
    rng = np.random.default_rng(41)
    traffic = new_traffic(judge_kind="judge")
    traffic.decide(80, rng=rng, shipped=0.7)
    severities, marks = some_severities(traffic, rng), some_severities(traffic, rng)
    traffic.label(traffic.made, severities)
    watcher = traffic.watcher(page=9)
    report = watcher.watch(GATE, now=START + MINUTE)
    assert report is not None
    # What was held needs no judge; the first that shipped waits for it.
    shipped = next(place for place, one in enumerate(traffic.made) if one.outcome == "ship")
    assert (0 if report.exposure is None else report.exposure.decisions) == shipped
    judged(traffic, traffic.made, marks)
    report = watcher.watch(GATE, now=START + MINUTE)
    assert report is not None
    sequence = fresh_sequence(traffic)
    sequence = replace(sequence, plan=replace(sequence.plan, judge_cap=JUDGE_CAP))
    rows = [
        AuditedDecision(
            0.5,
            sampled=one.sampled,
            loss=None if not one.sampled else severities[one.key.batch_id] if one.outcome == "ship" else 0.0,
            shipped=float(one.outcome == "ship"),
            predicted=marks[one.key.batch_id] if one.outcome == "ship" else 0.0,
        )
        for one in traffic.made
    ]
    assert report.exposure == sequence.observe(AuditedDecisions.of_pieces(rows)).exposure()


def test_a_judge_that_missed_the_deadline_is_done_without_until_the_next_period(
    light_traffic: Callable[..., Traffic],
) -> None:
    rng = np.random.default_rng(42)
    traffic = light_traffic(judge_kind="judge", budget_period_days=5.0)
    traffic.decide(30, rng=rng)
    severities = some_severities(traffic, rng)
    traffic.label(traffic.made, severities)
    judged(traffic, traffic.made[:20] + traffic.made[21:], severities)
    watcher = traffic.watcher()
    watcher.watch(GATE, now=START + MINUTE)
    assert traffic.store.monitoring.watch(GATE).read == 20
    watcher.watch(GATE, now=START + 2 * DAY)
    last, first = traffic.store.monitoring.sequences(GATE)
    assert (first.ended, first.state.decisions) == (JUDGE_MISSING, 20)
    # The one that was missing is read by neither, because whether it was missing may depend on the draw.
    assert last.state == fresh_sequence(traffic).observe(audited(traffic.made[21:], severities))
    assert (last.first, traffic.store.monitoring.watch(GATE).unwatched) == (22, 1)
    alarm = traffic.store.monitoring.watch(GATE).alarm("risk")
    assert alarm.state.bets.seen == sum(one.sampled for one in traffic.made)
    traffic.label(traffic.decide(3, rng=rng, start=START + 8 * DAY), lambda _: 0.0)
    judged(traffic, traffic.made[30:], {one.key.batch_id: 0.0 for one in traffic.made})
    watcher.watch(GATE, now=START + 8 * DAY)
    newest = traffic.store.monitoring.sequences(GATE)[0]
    assert (newest.number, newest.state.plan.judge_cap) == (3, JUDGE_CAP)
