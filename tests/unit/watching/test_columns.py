"""Decisions in columns: whether a run of undrawn ones is read at once or one by one gives the same state to the last bit."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from streamer.gates.settings import GateSettings
from streamer.risk.rounds.columns import LoggedColumns, LoggedDecisions, PolicyFacts, Undrawn
from streamer.risk.rounds.drift_alarms import DriftReader
from streamer.risk.rounds.horizon import Watermark, latest_of, time_of
from streamer.risk.rounds.label_alarms import LabelAlarmReader
from streamer.risk.rounds.logged import LoggedDecision, Terms
from streamer.risk.rounds.reading import IntervalReader
from streamer.risk.rounds.serving import serve
from streamer.risk.rounds.state import GateWatch
from streamer.risk.rounds.store import CalibratedSample
from streamer.risk.states import DriftAlarm

START = datetime(2026, 11, 20, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NOW = START + timedelta(days=3)
MARKS = tuple(Watermark(number, 0, 0, START + number * MINUTE) for number in (0, 130, 131, 400, 1000))


def facts(*, can_ship: bool = True, **settings: Any) -> PolicyFacts:
    fields = {"encoder": "e@1", "audit_probability": 0.2, "budget_period_days": 0.2}
    made = GateSettings(**(fields | settings))
    return PolicyFacts(settings=made, terms=Terms.of(made), run=7, can_ship=can_ship)


POLICIES = {
    1: facts(can_ship=False),
    2: facts(),
    3: facts(alpha=0.2),
    4: facts(alpha=0.2, judge_kind="judge"),
    5: facts(audit_probability=0.0),
    6: facts(alpha=0.2, audit_probability=0.1, on_alarm="report"),
}


def traffic(seed: int) -> LoggedDecisions:
    rng = np.random.default_rng(seed)
    rows, told, version = [], {}, 1
    for number in range(1, 801):
        if rng.random() < 0.02:
            version = int(rng.integers(1, 7))
        by = max(1, version - int(rng.random() < 0.03))  # a worker that has not heard of the newest
        audit = POLICIES[by].settings.audit_probability
        probability = float(rng.choice([audit, min(1.0, 2 * audit), 1.0], p=[0.9, 0.08, 0.02]))
        scored = bool(rng.random() < 0.97)
        sampled = bool(scored and rng.random() < min(probability, 0.9))
        shipped = float(rng.choice([0.0, 0.5, 1.0])) * scored
        said = START + number * MINUTE + timedelta(minutes=float(rng.choice([-90, 0, 0, 90])))
        needed = int(sampled and shipped > 0)
        rows.append(
            LoggedColumns(
                number=number, batch_id=f"b{number}", policy_version=by, decided_at=said, sampled=sampled,
                probability=probability if scored else 0.0, cloud=json.dumps([0.5, number / 7]), scored=scored,
                shipped=shipped, score=float(rng.random()) if scored else None, drawn=int(sampled), needed=needed,
            )
        )  # fmt: skip
        if needed and rng.random() < 0.9:
            told[number] = (float(rng.random() < 0.2), said + MINUTE)
    page = LoggedDecisions(LoggedColumns(*zip(*rows, strict=True)), POLICIES)
    return page.with_known(
        replace(one, severities=(told[one.number][0],), labelled_at=told[one.number][1])
        for one in page
        if one.number in told
    )


def read(decisions: Sequence[LoggedDecision], watch: GateWatch) -> Any:
    deadline = timedelta(days=1)
    betting = LabelAlarmReader(
        watch, now=NOW, deadline=deadline, lag=deadline, calibrated=lambda _: CalibratedSample(0.5, 0.4)
    )
    betting.read(decisions)
    watch, past = betting.result()
    reading = IntervalReader(watch, now=NOW, deadline=deadline)
    reading.read(decisions)
    after, ended = reading.result()
    served, _ = serve(watch, after, ended, decisions, lambda *_: decisions)
    return served, past, ended, reading.blocked_at


@pytest.mark.parametrize("seed", range(12))
def test_a_run_at_once_gives_the_state_of_its_decisions_one_by_one(seed: int) -> None:
    page, watch = traffic(seed), GateWatch(gate="g", marks=MARKS)
    assert read(page, watch) == read(list(page), watch)
    some = [piece for piece in page.pieces() if isinstance(piece, Undrawn)]
    assert sum(map(len, some)) > 100, "there are runs"


@pytest.mark.parametrize("seed", range(3))
def test_the_pieces_of_a_page_are_all_of_it_in_order(seed: int) -> None:
    page = traffic(seed)
    found: list[LoggedDecision] = []
    for piece in page.pieces():
        found += piece.singles() if isinstance(piece, Undrawn) else [piece]
        assert not isinstance(piece, Undrawn) or not any(
            one.sampled or not one.watched for one in piece.singles()
        )
    assert found == list(page)
    assert [place for piece in page.of_one_policy() for place in piece] == list(range(len(page)))
    assert list(LoggedDecisions().pieces()) == []


def test_the_latest_time_of_a_run_is_that_of_its_decisions() -> None:
    page = traffic(0)
    for start, stop in ((0, 50), (100, 300), (129, 131), (700, 800)):
        numbers, said = page.numbers[start:stop], page.decided_at[start:stop]
        each = [time_of(number, moment, MARKS) for number, moment in zip(numbers, said, strict=True)]
        assert latest_of(numbers, said, MARKS) == (max(each), each[-1])


@pytest.mark.parametrize("cuts", [(1,), (3, 4, 5), (130, 611), tuple(range(7, 800, 7))])
def test_drift_is_the_same_however_decisions_are_cut_into_pages(cuts: tuple[int, ...]) -> None:
    reference, page, watch = traffic(1), traffic(2), GateWatch(gate="g", marks=MARKS)

    def after(*pages: LoggedDecisions) -> GateWatch:
        now = watch
        for one in pages:
            reader = DriftReader(now, now=NOW, salt=b"s" * 32, reference=lambda _run: reference)
            reader.read(one)
            now, _ = reader.result()
        return now

    ends = [0, *cuts, len(page)]
    whole = after(page)
    assert whole == after(*(part(page, start, stop) for start, stop in pairwise(ends)))
    (drift,) = [one for one in whole.alarms if one.kind == "drift_scores"]
    assert isinstance(drift.state, DriftAlarm)
    assert drift.state.bets.seen > 600


def part(page: LoggedDecisions, start: int, stop: int) -> LoggedDecisions:
    return LoggedDecisions(LoggedColumns(*(column[start:stop] for column in page._columns)), POLICIES)
