"""Verdicts: only open time counts, and nothing is called kept ahead of its labels. The store is a list of decisions."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from streamer.gates.policy import Policy
from streamer.gates.settings import GateSettings
from streamer.risk.rounds.horizon import Watermark
from streamer.risk.rounds.label_alarms import LabelAlarmReader
from streamer.risk.rounds.logged import LoggedDecision
from streamer.risk.rounds.reading import IntervalReader
from streamer.risk.rounds.report import AlarmReport, Backlog, OpenAlert, OpenFigures, RiskReport, report_of
from streamer.risk.rounds.serving import serve
from streamer.risk.rounds.state import BETTING, MOST_DELAYS, GateWatch, ServiceState
from streamer.risk.rounds.verdict import with_verdict
from streamer.risk.states import AuditedDecision, AuditedDecisions, ExposurePlan, OpenTime
from streamer.wording.verdicts import ALARMS, facts, interval_text, sentence, shown_verdict
from streamer.wording.verdicts import figures as figures_of
from tests.made import a_policy

START = datetime(2026, 11, 20, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SETTINGS = GateSettings(encoder="mini", alpha=0.1, audit_probability=0.5, monitor_deadline_seconds=86_400.0)
NONE_WAITING = Backlog(unread=0, labels=0, oldest=None)


def policy(version: int, state: str = "open") -> Policy:
    return a_policy(SETTINGS, gate="bot", version=version, state=state, valid_from=START)


def decision(number: int, version: int, **changes: Any) -> LoggedDecision:
    """Drawn, shipped and labelled as fine, unless said."""
    at = START + number * MINUTE
    fields: dict[str, Any] = {
        "number": number, "batch_id": str(number), "policy_version": version, "settings": SETTINGS, "run": None, "can_ship": True,
        "decided_at": at, "scored": True, "sampled": True, "probability": 0.5, "shipped": 1.0, "drawn": 1, "needed": 1,
        "severities": (0.0,), "labelled_at": at + MINUTE,
    }  # fmt: skip
    return LoggedDecision(**(fields | changes))


def held(number: int, version: int, **changes: Any) -> LoggedDecision:
    nothing = {"shipped": 0.0, "needed": 0, "severities": (), "labelled_at": None}
    return decision(number, version, **(nothing | changes))


def undrawn(number: int, version: int, **changes: Any) -> LoggedDecision:
    nothing = {"sampled": False, "drawn": 0, "needed": 0, "severities": (), "labelled_at": None}
    return decision(number, version, **(nothing | changes))


def read(
    decisions: Sequence[LoggedDecision], *, now: datetime, pages: int = 1, watch: GateWatch | None = None
) -> GateWatch:
    """Read as a round does, in so many pages."""
    watch = watch or GateWatch(gate="bot")

    def fetch(after: int, until: int) -> list[LoggedDecision]:
        return [one for one in decisions if after < one.number <= until]

    for piece in np.array_split(np.arange(len(decisions)), pages):
        page = [decisions[place] for place in piece]
        betting = LabelAlarmReader(
            watch, now=now, deadline=timedelta(days=1), lag=timedelta(days=1), calibrated=lambda _: None
        )
        betting.read(page)
        tally = betting.result()[0].tally
        reading = IntervalReader(watch, now=now, deadline=timedelta(days=1))
        reading.read(page)
        after, ended = reading.result()
        after = replace(
            after, tally=tally, bet=page[-1].number, marks=(Watermark(page[-1].number, 0, 0, now),)
        )
        after, behind = serve(watch, after, ended, page, fetch)
        while behind:
            after, behind = serve(after, after, [], [], fetch)
        through = reading.blocked_at or now
        watch = replace(after, read_through=through)
        if reading.blocked_at is not None:
            break
    return watch


def judged(
    watch: GateWatch, in_force: Policy, *, now: datetime, backlog: Backlog | None = None
) -> RiskReport:
    return with_verdict(report_of(watch, in_force.settings), watch, in_force, now=now, backlog=backlog)


def after(decisions: Sequence[LoggedDecision]) -> datetime:
    return START + (decisions[-1].number + 2) * MINUTE


def many_labels(first: int, version: int, count: int = 400) -> list[LoggedDecision]:
    return [(decision if number % 2 else undrawn)(number, version) for number in range(first, first + count)]


def test_labels_enough_and_reading_at_its_end_are_kept() -> None:
    decisions = many_labels(1, 2)
    report = judged(read(decisions, now=after(decisions)), policy(2), now=after(decisions))
    assert (report.verdict, report.service and report.service.reason) == ("kept", "")
    assert sentence(report).startswith("bot: the budget was kept under policy 2: exposure 0 %, at most ")


def figures(report: RiskReport) -> tuple[OpenFigures, OpenFigures]:
    assert report.service.present is not None
    assert report.service.period is not None
    return report.service.present, report.service.period


def risks(report: RiskReport) -> list[str]:
    """The names of the two risks, as the figures have them."""
    shown = figures_of(report)
    return [row[0] for row in shown.rows if row[0].startswith(("exposure", "error rate"))]


def test_a_gate_is_held_to_the_risk_that_its_method_bounds() -> None:
    """One in four ships and a fifth of that is wrong: .05 of prompts, and .2 of what ships, of a budget of .1."""
    decisions = []
    for number in range(1, 3001):
        drawn = number % 8 < 4  # every other one, of those that ship and of those that are held
        if number % 4:
            decisions.append((held if drawn else undrawn)(number, 2, **({} if drawn else {"shipped": 0.0})))
        else:
            wrong = float(number // 8 % 5 == 0)
            decisions.append(decision(number, 2, severities=(wrong,)) if drawn else undrawn(number, 2))
    now = after(decisions)
    per_prompt = judged(read(decisions, now=now), policy(2), now=now)
    assert per_prompt.verdict == "kept"
    assert sentence(per_prompt).startswith("bot: the budget was kept under policy 2: exposure 5")
    assert risks(per_prompt) == ["exposure, budget 10 %", "error rate among shipped answers"]
    for method in ("selective", "selective-mean"):
        chosen = replace(policy(2), settings=replace(SETTINGS, method=method))
        among = judged(read(decisions, now=now), chosen, now=now)
        assert among.verdict == "broken"
        said = sentence(among)
        assert said.startswith(
            "bot: the budget was BROKEN under policy 2: error rate among shipped answers 20"
        )
        assert ", budget 10 %; 25 % of prompts served, exposure 5" in said
        # What `streamer risk` and the console show below it.
        assert risks(among) == ["error rate among shipped answers, budget 10 %", "exposure"]


def test_of_claims_it_says_what_the_loss_bounds() -> None:
    settings = replace(SETTINGS, unit="claim", scorer="support", encoder="none")
    decisions = [replace(one, settings=settings) for one in many_labels(1, 2, 300)]
    now = after(decisions)
    report = judged(read(decisions, now=now), replace(policy(2), settings=settings), now=now)
    said = sentence(report)
    assert "the share of prompts that get a wrong claim" in said
    assert "loss any of a prompt that gets something" in said
    shown = figures_of(report)
    rows = [row[0] for row in shown.rows]
    assert "the share of prompts that get a wrong claim, budget 10 %" in rows
    assert "labelled prompts that got something" in rows
    assert not any("answers" in name or "exposure" in name for name in (said, *rows))


@pytest.mark.parametrize("closed", [0, 1, 201, 3_000])
def test_closed_phases_of_any_length_change_no_figure_and_no_word(closed: int) -> None:
    opened = [
        replace(one, number=one.number + closed, policy_version=3)
        for one in [*many_labels(1, 3, 30), held(31, 3), decision(32, 3, severities=(1.0,))]
    ]
    phase = [held(number, 2, can_ship=False) for number in range(1, closed + 1)]
    later = [held(number, 4, can_ship=False) for number in range(closed + 33, 2 * closed + 33)]
    now = START + (2 * closed + 40) * MINUTE
    alone = judged(read(opened, now=now), policy(3), now=now)
    among = judged(read([*phase, *opened, *later], now=now), policy(3), now=now)
    assert figures(among) == figures(alone)
    assert figures(alone)[0].labelled == 16
    assert sentence(among) == sentence(alone)
    assert among.verdict == "not known yet"


def test_two_hundred_closed_decisions_and_five_labels_are_too_early() -> None:
    settings = replace(SETTINGS, audit_probability=0.2)
    drawn: dict[str, Any] = {"settings": settings, "probability": 0.2}
    decisions = [
        held(number, 2, can_ship=False, sampled=number % 5 == 0, **drawn) for number in range(1, 202)
    ]
    for number in range(202, 352):  # one in six ships, one in five of these is drawn
        kind = held if number % 6 else decision if number % 30 == 0 else undrawn
        decisions.append(kind(number, 3, **({"sampled": number % 5 == 0} if number % 6 else {}), **drawn))
    watch = read(decisions, now=after(decisions))
    assert watch.sequence.state.exposure().upper < SETTINGS.alpha, "what used to be called kept"
    report = judged(watch, policy(3), now=after(decisions))
    assert (report.verdict, report.service and report.service.reason) == ("not known yet", "too few labels")
    assert "5 labelled shipped answers are too few" in sentence(report)


@pytest.mark.parametrize("pages", [1, 3, 40])
def test_pages_and_restarts_change_nothing(pages: int) -> None:
    decisions = [
        *many_labels(1, 2, 60),
        *[held(n, 3, can_ship=False) for n in range(61, 90)],
        *many_labels(90, 4, 60),
    ]
    whole = read(decisions, now=after(decisions))
    assert read(decisions, now=after(decisions), pages=pages).service == whole.service
    assert ServiceState.from_json(whole.service.to_json()) == whole.service
    assert (whole.service.before.first_policy, whole.service.before.open.decisions) == (2, 60)


def test_nothing_is_kept_while_reading_stands_still() -> None:
    decisions = many_labels(1, 2)
    watch = read(decisions, now=after(decisions))
    behind = after(decisions) + 10 * MINUTE
    waiting = Backlog(unread=25, labels=0, oldest=None)
    report = judged(watch, policy(2), now=behind, backlog=waiting)
    wanted = ("not known yet", "reading stands still")
    assert (report.verdict, report.service and report.service.reason) == wanted
    assert "25 decisions wait for `streamer recalibrator`" in sentence(report)
    assert judged(watch, policy(2), now=behind).verdict == "not known yet"
    # Where nothing was decided since there is nothing that could be read.
    assert judged(watch, policy(2), now=behind, backlog=NONE_WAITING).verdict == "kept"


def test_a_label_that_is_missing_is_named_and_holds_no_verdict_up() -> None:
    decisions = [
        *many_labels(1, 2),
        decision(401, 2, severities=(), labelled_at=None),
        *many_labels(402, 2, 50),
    ]
    missing = Backlog(unread=0, labels=1, oldest=decisions[400].decided_at)
    now = START + 431 * MINUTE
    report = judged(read(decisions, now=now), policy(2), now=now, backlog=missing)
    assert report.verdict == "kept"
    assert sentence(report).endswith(", by 225 labels. 1 label is missing since 2026-11-20 18:41:00Z.")
    # As bad ones they would count when `kept` is asked for: of as many good ones, forty that are missing leave it open.
    gone = [replace(one, severities=(), labelled_at=None) for one in decisions[300:380]]
    report = judged(read([*decisions[:300], *gone], now=now), policy(2), now=now, backlog=missing)
    assert (report.verdict, report.service and report.service.reason) == ("not known yet", "too few labels")


def waiting(number: int, version: int) -> LoggedDecision:
    return decision(number, version, severities=(), labelled_at=None)


@pytest.mark.parametrize("known", [0, 2, 60], ids=["none", "few", "many"])
def test_what_shipped_and_waits_for_labels_is_in_the_bounds_of_the_budget_used(known: int) -> None:
    """A quarter is held; labels of the first prompts say that they are fine, those of the others have not come: all may be bad."""
    kind = {0: held, 1: waiting, 2: undrawn, 3: waiting}
    decisions = [kind[n % 4](n, 2, **({} if n % 4 else {"shipped": 0.0})) for n in range(1, known + 101)]
    decisions[:known] = [replace(one, severities=(0.0,) * one.needed) for one in decisions[:known]]
    now = after(decisions)
    report = judged(read(decisions, now=now), policy(2), now=now)
    assert report.burn is not None
    assert report.service is not None
    shown, share = report.service.period, 75 / len(decisions)
    assert shown is not None
    assert shown.exposure.lower == 0
    assert shown.exposure.upper >= share
    used = share / SETTINGS.alpha * (now - START - 3 * MINUTE) / timedelta(days=30)
    assert report.burn.used_lower == 0
    assert report.burn.used_upper >= used * (1 - 1e-9)
    assert report.burn.days_left_soonest is not None
    assert report.burn.days_left_soonest <= (now - START) / timedelta(days=1) / used
    assert (report.burn.unread, report.burn.used) == (75, 0.0 if known else None)
    said = dict(facts(report, None))["budget used"]
    assert "taking 75 served prompts not read yet as wrong" in said
    assert ("will not run out" in said) == (known > 0)
    # Once they have come, nothing is taken at its worst.
    there = [replace(one, severities=(1.0,) * one.needed) for one in decisions]
    report = judged(read(there, now=now), policy(2), now=now)
    assert report.burn is not None
    assert (report.burn.unread, report.burn.used_lower > used / 4) == (0, True)


def test_of_a_new_period_nothing_is_known_from_the_one_before_it() -> None:
    """Reading waits for a label of the old period, of which all was wrong; of the new one nothing has been read."""
    settings = replace(SETTINGS, budget_period_days=0.5)
    old = [decision(n, 2, severities=(1.0,), settings=settings) for n in range(1, 700)]
    new = [undrawn(n, 2, settings=settings) for n in range(721, 800)]
    decisions = [*old, replace(waiting(700, 2), settings=settings), *new]
    now = after(decisions)
    in_force = replace(policy(2), settings=settings)
    report = judged(read(decisions, now=now), in_force, now=now)
    assert report.burn is not None
    assert (report.burn.used, report.burn.used_lower, report.burn.unread) == (None, 0.0, len(new))
    assert report.service is not None
    assert report.service.period is not None
    assert (report.service.period.decisions, report.service.period.exposure.lower) == (len(new), 0.0)


def test_labels_take_as_long_as_they_took_and_a_deadline_before_that_is_known() -> None:
    few = many_labels(1, 2, 30)
    watch = read(few, now=after(few))
    assert watch.service.lag(86_400.0) == 86_400.0
    more = many_labels(1, 2, 4 * MOST_DELAYS)
    watch = read(more, now=after(more))
    assert len(watch.service.delays) == MOST_DELAYS
    assert watch.service.lag(86_400.0) == 60.0


def test_broken_stays_said_for_the_period_after_another_policy() -> None:
    bad = [decision(number, 2, severities=(1.0,)) for number in range(1, 60)]
    good = many_labels(60, 3, 100)
    decisions = [*bad, *good]
    report = judged(read(decisions, now=after(decisions)), policy(3), now=after(decisions))
    present, period = figures(report)
    assert (present.verdict, period.verdict, report.verdict) == ("not known yet", "broken", "broken")
    assert "the budget was BROKEN in this period" in sentence(report)
    assert "Under policy 3 alone: not known yet, by 50 labels." in sentence(report)
    assert report.service.before.decisions == len(bad)


def test_a_new_policy_and_one_that_ships_nothing_leave_the_verdict_of_the_period() -> None:
    decisions = many_labels(1, 2)
    watch = read(decisions, now=after(decisions))
    report = judged(watch, policy(3), now=after(decisions))
    assert report.verdict == "kept"
    assert sentence(report).startswith("bot: the budget was kept in this period: exposure 0 %, at most ")
    assert sentence(report).endswith(" Nothing has been read yet under policy 3.")
    closed = judged(watch, policy(3, "closed"), now=after(decisions))
    assert closed.verdict == "kept"
    assert sentence(closed).startswith("bot: the budget was kept in this period: ")
    assert sentence(closed).endswith("The gate is closed (policy 3).")
    never = judged(
        read([held(1, 1, can_ship=False)], now=START + 3 * MINUTE),
        policy(1, "closed"),
        now=START + 3 * MINUTE,
    )
    assert (never.verdict, never.service and never.service.reason) == ("not known yet", "nothing was decided")


def test_labels_that_were_raised_lie_within_the_bounds_that_are_shown() -> None:
    fine = many_labels(1, 2)
    raised = [replace(one, severities=(1.0,)) if one.sampled else one for one in fine]
    watch = replace(read(fine, now=after(fine)), tally=read(raised, now=after(fine)).tally)
    closed = judged(watch, policy(3, "closed"), now=after(fine))
    assert (closed.service.before, closed.service.period is None) == (None, False), "the same prompts once"
    exposure = closed.service.period.exposure  # type: ignore[union-attr]
    assert (closed.verdict, exposure.estimate, exposure.upper) == ("broken", 1.0, 1.0)


def test_where_nothing_ships_or_is_labelled_nothing_is_kept() -> None:
    nothing = [held(number, 2) for number in range(1, 2_000)]
    report = judged(read(nothing, now=after(nothing)), policy(2), now=after(nothing))
    present, _ = figures(report)
    assert (present.exposure.lower, present.exposure.upper, present.share_served) == (0.0, 0.0, 0.0)
    assert present.selective.estimate is None
    assert (report.verdict, report.service and report.service.reason) == ("not known yet", "nothing shipped")
    some = [*nothing, undrawn(2_000, 2)]
    report = judged(read(some, now=after(some)), policy(2), now=after(some))
    assert (report.verdict, report.service and report.service.reason) == ("not known yet", "no labels")
    # A label that never came counts as wrong, and is no answer that was found wrong.
    missing = [*nothing, decision(2_000, 2, severities=(), labelled_at=None)]
    later = after(missing) + timedelta(days=2)
    report = judged(read(missing, now=later), policy(2), now=later, backlog=NONE_WAITING)
    present, _ = figures(report)
    assert (present.labelled, present.overdue, present.selective.estimate) == (0, 1, None)
    assert interval_text(present.selective) == "not known"
    assert interval_text(present.exposure) == "not known, between 0 % and 0.05 %"


@pytest.mark.parametrize(
    ("kind", "reason", "words"),
    [
        (
            "draws",
            "draws are in doubt",
            "the audit sample may not be drawn at the rate that is logged; as recorded, ",
        ),
        ("drift_scores", "what comes has drifted", "not what was calibrated on"),
        ("drift_cloud", "what comes has drifted", "not what was calibrated on"),
    ],
)
def test_nothing_is_kept_while_an_alarm_puts_its_labels_in_doubt(kind: Any, reason: str, words: str) -> None:
    report = with_alarm(kind, policy(2))
    assert (report.verdict, report.service and report.service.reason) == ("not known yet", reason)
    assert words in sentence(report)
    assert "exposure 0 %, at most 2.89 %, budget 10 %" in sentence(report), "no figure is silent"
    present, _ = figures(report)
    assert (present.verdict, shown_verdict(report, present)) == ("kept", "not known yet")


def with_alarm(kind: Any, in_force: Policy) -> RiskReport:
    """Labels enough for `kept`, and an alarm that stands."""
    decisions = many_labels(1, 2)
    watch = read(decisions, now=after(decisions))
    raised = AlarmReport(
        kind=kind, statistic="", number=1, delta=0.03, evidence_ratio=1.0, chance=0.03, read=400, raised_at=START, alert_id=None, closed_policy=None
    )  # fmt: skip
    report = replace(report_of(watch, in_force.settings), alarms=(raised,))
    return with_verdict(report, watch, in_force, now=after(decisions))


def test_an_alarm_on_another_risk_than_the_promised_one_leaves_the_verdict() -> None:
    """What ships may be no better than everything, and so little of it that the budget on prompts is kept."""
    report = with_alarm("selective", policy(2))
    assert report.verdict == "kept"
    assert sentence(report).startswith(
        "bot: ALARM: selective risk, since 2026-11-20 12:00:00Z. The budget was kept "
    )
    among = replace(policy(2), settings=replace(SETTINGS, method="selective"))
    assert with_alarm("selective", among).verdict == "broken"


@pytest.mark.parametrize(
    "in_force", [policy(2), policy(3, "closed"), policy(3)], ids=["same", "closed", "reopened"]
)
def test_an_alarm_leads_until_somebody_acknowledges_it(in_force: Policy) -> None:
    """Also one that has closed the gate, and after the gate is open again."""
    report = with_alarm("risk", in_force)
    assert (report.verdict, report.service and report.service.reason) == ("broken", "the risk has risen")
    said = sentence(report)
    assert said.startswith(
        "bot: ALARM: risk, since 2026-11-20 12:00:00Z. The budget was BROKEN of late: the risk alarm says so "
    )
    found = "In this period: exposure 0 %, at most 2.89 %, budget 10 %"
    assert found in said, "the whole period is another matter"
    ended = OpenAlert("risk", START, "58ba33120000", 3)
    watch = read(many_labels(1, 2), now=after(many_labels(1, 2)))
    report = replace(report_of(watch, in_force.settings), unacknowledged=(ended,))
    report = with_verdict(report, watch, in_force, now=after(many_labels(1, 2)))
    assert report.verdict == "broken"
    assert sentence(report).startswith(
        "bot: ALARM: risk, since 2026-11-20 12:00:00Z, closed the gate (policy 3); nobody has acknowledged it: "
        '`streamer alert acknowledge 58ba3312 --reason "..."`. The budget was BROKEN of late'
    )


@pytest.mark.parametrize(
    ("in_force", "said"),
    [
        (policy(3, "closed"), "closed the gate (policy 3)."),
        (policy(4), "held the gate (policy 3) until labels cleared it."),
    ],
    ids=["held", "let go"],
)
def test_a_drift_that_held_a_gate_which_ships_again_says_so(in_force: Policy, said: str) -> None:
    report = with_alarm("drift_cloud", in_force)
    report = replace(report, alarms=(replace(report.alarms[0], closed_policy=3),))
    assert f"drift of embeddings, since 2026-11-20 12:00:00Z, {said}" in sentence(report)


def test_every_alarm_has_a_name_in_the_sentence() -> None:
    assert set(ALARMS) == {*BETTING, "draws", "drift_scores", "drift_cloud"}


def test_open_time_is_the_exposure_of_what_shipped() -> None:
    rng = np.random.default_rng(1)
    plan = ExposurePlan(delta=0.1, least_probability=0.2)
    shipped = rng.random(500) < 0.4
    sampled = rng.random(500) < 0.2
    rows = [
        AuditedDecision(0.2, sampled=bool(draw), loss=0.3 * ships if draw else None, shipped=float(ships))
        for ships, draw in zip(shipped, sampled, strict=True)
    ]
    state = OpenTime.begin(plan).observe(
        AuditedDecisions.of_pieces(rows), answers=int((shipped & sampled).sum())
    )
    exposure, selective = state.exposure(), state.selective()
    assert state.share_served == shipped.mean()
    assert selective.lower < 0.3 < selective.upper
    assert exposure.upper == pytest.approx(selective.upper * shipped.mean())
    assert exposure.upper <= shipped.mean()
    assert OpenTime.from_json(state.to_json()) == state
