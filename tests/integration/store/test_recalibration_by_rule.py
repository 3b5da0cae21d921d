"""The gate's rule on real records: what labels can and cannot do to a policy by themselves."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from streamer.cli import main
from streamer.errors import UsageError
from streamer.gates.policy import MONITOR, RECALIBRATOR
from streamer.recalibration.one_gate import recalibrate_by_hand
from streamer.recalibration.run import NothingToCalibrate, PolicyChanged, calibrate_gate
from streamer.recalibration.runner import Schedule
from streamer.store.audit import control
from streamer.store.db import engine
from tests.integration.store.conftest import World
from tests.integration.store.labelled_gate import GATE, LabelledGate, bad_below


@pytest.fixture
def site(new_world: Callable[..., World]) -> Callable[..., LabelledGate]:
    return lambda **settings: LabelledGate(new_world(), **settings)


def test_a_proposal_waits_and_the_next_run_finds_it_in_force(
    site: Callable[..., LabelledGate],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = site(recalibrate="propose")
    one.label(one.decide(200), bad_below(0.3))
    done = one.run()
    assert (done.outcome, done.why) == ("proposed", "the gate's rule is propose")
    assert one.policy.version == 1
    proposal = one.store.calibration.proposal(GATE)
    assert (proposal.by, proposal.why) == (RECALIBRATOR, done.why)
    monkeypatch.setenv("STREAMER_DATABASE_URL", one.world.url)
    monkeypatch.chdir(tmp_path)
    for words in (("threshold", "show", GATE), ("doctor",)):
        main(words)
        told = " ".join("".join(capsys.readouterr()).split())
        assert "waits for a person: the gate's rule is propose" in told
    one.store.calibration.activate(GATE, by="ana", reason="fine", now=one.clock())
    assert one.run().outcome == "unchanged"
    assert one.policy.version == 2
    assert one.store.calibration.proposal(GATE) is None
    assert [row.outcome for row in one.runs()] == ["proposed", "unchanged"]


def test_a_first_opening_waits_unless_it_is_a_small_step(site: Callable[..., LabelledGate]) -> None:
    one = site()
    one.label(one.decide(200), bad_below(0.3))
    done = one.run()
    assert done.outcome == "proposed"
    assert "the threshold would move" in done.why
    assert one.policy.version == 1
    one.store.gates.revise(GATE, {"max_lambda_step": 1.0, "max_ship_rate_step": 1.0}, by="ana", reason="bold")
    assert one.run().outcome == "applied"
    assert one.policy.state == "cut"


def test_holding_more_acts_at_once_and_a_large_step_is_told(site: Callable[..., LabelledGate]) -> None:
    one = site()
    one.label(one.decide(200), bad_below(0.3))
    before = one.open()
    one.label(one.decide(200), bad_below(0.8))
    done = one.run()
    assert done.outcome == "applied"
    after = one.policy
    assert after.threshold is not None
    assert before.threshold is not None
    assert after.threshold > before.threshold + 0.1
    assert (after.created_by, after.reason) == (RECALIBRATOR, done.why)
    assert after.calibration_run == one.runs()[-1].id
    alerts = one.store.alerts.list(GATE)
    wanted = [("large_step", after.version)]
    assert [(found.alert.kind, found.alert.policy_version) for found in alerts] == wanted
    one.run()
    again = one.policy
    # On the same labels it never holds less; by chance the newest may be found worse than the rest.
    assert again.version == after.version or again.threshold is None or again.threshold > after.threshold


def test_holding_less_needs_enough_new_groups(site: Callable[..., LabelledGate]) -> None:
    one = site()
    one.label(one.decide(200), bad_below(0.35))
    before = one.open()
    one.label(one.decide(40), bad_below(0.0))
    done = one.run()
    assert (done.outcome, one.policy.version) == ("proposed", before.version)
    assert "40 of its labelled groups are new since the policy in force, at least 50 must be" in done.why
    one.label(one.decide(20), bad_below(0.0))
    assert one.run().outcome == "applied"
    after = one.policy
    assert after.threshold is not None
    assert before.threshold is not None
    assert before.threshold - 0.1 <= after.threshold < before.threshold
    assert one.runs()[-1].severities == "mean", "nobody gave two labels: the run on worst labels is the run"


@pytest.mark.parametrize("kind", ["risk", "draws"])
def test_while_an_alarm_stands_nothing_is_loosened_by_itself(
    site: Callable[..., LabelledGate], kind: str
) -> None:
    one = site()
    one.label(one.decide(200), bad_below(0.35))
    before = one.open()
    one.label(one.decide(60), bad_below(0.0))

    def alarm(step: str) -> None:
        if step == "before_record":
            one.world.tamper(
                "INSERT INTO monitor_alarms (gate, kind, statistic, number, about, delta, evidence_ratio, after_batch,"
                " after_policy, state, raised_by, raised_at)"
                f" VALUES ('{GATE}', '{kind}', '', 1, '', 0.03, 1.5, 0, 0, '{{}}', 7, '2026-11-20 00:00:00+00:00')"
            )

    with pytest.raises(PolicyChanged, match="run again"):
        one.run(meanwhile=alarm)
    done = one.run()
    assert (done.outcome, one.policy.version) == ("proposed", before.version)
    assert "stands" in done.why
    one.world.tamper("UPDATE monitor_alarms SET ended = 'acknowledged'")
    one.label(one.decide(1), bad_below(0.0))
    assert one.run().outcome == "applied"


@pytest.mark.parametrize("attack", ["the same labeller takes it back", "many others say it is fine"])
def test_labels_that_turn_good_never_loosen_a_policy_by_themselves(
    site: Callable[..., LabelledGate], attack: str
) -> None:
    one = site(max_lambda_step=1.0, max_ship_rate_step=1.0)
    numbers = one.decide(200)
    one.label(numbers, bad_below(0.5))
    before = one.open()
    fresh = one.decide(100)
    one.label(fresh, bad_below(0.5))
    assert one.run().outcome in ("unchanged", "applied")
    present = one.policy
    if attack.startswith("the same"):
        one.label([*numbers, *fresh], bad_below(0.0), days=0.5)
    else:
        for other in range(20):
            one.label([*numbers, *fresh], bad_below(0.0), by=f"bot-{other}")
    more = one.decide(100)
    one.label(more, bad_below(0.5))
    one.label(more, bad_below(0.0), by="ana", days=0.5)
    done = one.run()
    assert one.policy.threshold is not None
    assert present.threshold is not None
    assert before.threshold is not None
    # What the highest labels of all 400 groups allow, and not a step further.
    honest = recalibrate_honestly(one)
    assert one.policy.threshold >= min(present.threshold, honest)
    assert done.outcome in ("proposed", "applied")
    if done.outcome == "applied":
        assert one.runs()[-1].severities == "highest"
        assert "the highest ever given counted" in one.policy.guarantee
        assert one.policy.threshold == honest


def recalibrate_honestly(one: LabelledGate) -> float:
    run = calibrate_gate(
        one.store.calibration, one.store.gates.get(GATE), now=one.clock(), severities="highest"
    )
    return run.decided.value


def test_a_person_closes_by_going_back_to_a_run_that_held_everything_too(
    site: Callable[..., LabelledGate],
) -> None:
    one = site(max_lambda_step=1.0, max_ship_rate_step=1.0)
    one.decide(5)  # too few for any threshold
    closed = one.open()
    assert (closed.state, closed.calibration_run) == ("closed", 1)
    numbers = one.decide(200)
    one.label([*range(5), *numbers], bad_below(0.3))
    assert one.open().state == "cut"
    one.store.policies.rollback(GATE, closed.version, by="ana", reason="complaints")
    one.label(one.decide(200), bad_below(0.3))
    done = one.run()
    assert (done.outcome, one.policy.state) == ("proposed", "closed")
    assert "a person closed the gate" in done.why


def test_nothing_opens_by_hand_without_a_label(site: Callable[..., LabelledGate]) -> None:
    one = site()
    numbers = one.decide(200)
    with pytest.raises(NothingToCalibrate, match=r"none of the 100 drawn .* has a label; label some first"):
        one.open()
    one.label(numbers[110:], bad_below(0.3))
    with pytest.raises(NothingToCalibrate, match="90 labels of newer draws are not read until the older"):
        one.open()
    assert one.policy.version == 1
    one.label(numbers, bad_below(0.3))
    assert one.open().state == "cut"


def test_after_an_alarm_only_what_was_decided_since_is_read_and_the_gate_reopens_no_looser(
    site: Callable[..., LabelledGate],
) -> None:
    one = site()
    one.label(one.decide(200), bad_below(0.3))
    before = one.open()
    assert before.threshold is not None
    one.store.policies.close(GATE, by=MONITOR, reason="risk alarm")
    closed = one.policy
    with pytest.raises(NothingToCalibrate, match="since an alarm closed it"):
        one.run()
    # The command reads no more than the service does.
    with pytest.raises(NothingToCalibrate):
        one.open()
    one.label(one.decide(99), bad_below(0.6))
    done = one.run()
    assert (done.outcome, one.policy.version) == ("proposed", closed.version)
    assert "99 groups have a label, at least 100 must" in done.why
    one.label(one.decide(100), bad_below(0.6))
    done = one.run()
    assert (done.outcome, "reopened after an alarm" in done.why) == ("applied", True)
    after = one.policy
    assert after.threshold is not None
    assert after.threshold > before.threshold
    assert len(done.run.groups) == 199
    assert f"since an alarm closed the gate (policy {closed.version}" in after.guarantee
    assert [row.since_version for row in one.runs()] == [None, closed.version, closed.version]


def test_what_was_proposed_before_an_alarm_cannot_be_put_in_force_after_it(
    site: Callable[..., LabelledGate],
) -> None:
    one = site()
    one.label(one.decide(200), bad_below(0.5))
    one.open()
    one.label(one.decide(40), bad_below(0.0))
    assert one.run().outcome == "proposed"
    one.store.policies.close(GATE, by=MONITOR, reason="risk alarm")
    assert one.store.calibration.proposal(GATE) is None
    with pytest.raises(UsageError, match="an alarm closed gate 'support-bot' since its newest run"):
        one.store.calibration.activate(GATE, by="ana", reason="", now=one.clock())


@pytest.mark.parametrize("by", ["ana", MONITOR])
def test_a_run_by_hand_does_not_open_what_was_closed_meanwhile(
    site: Callable[..., LabelledGate], by: str
) -> None:
    one = site()
    one.label(one.decide(200), bad_below(0.3))
    one.open()
    runs, asked = len(one.runs()), []

    def clock() -> datetime:
        asked.append(one.clock())
        if len(asked) == 2:  # the first reading begins the run, the second dates its record
            one.store.policies.close(GATE, by=by, reason="at this very moment")
        return asked[-1]

    with pytest.raises(PolicyChanged, match="run again"):
        recalibrate_by_hand(
            one.store.calibration, one.store.policies, one.store.gates.get(GATE), clock=clock,
            by="ben", reason="routine",
        )  # fmt: skip
    assert one.policy.state == "closed"
    assert len(one.runs()) == runs


def test_who_closes_a_gate_does_not_wait_for_a_run_that_is_being_written(
    migrated_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(migrated_postgres_url)
    one = LabelledGate(world)
    one.label(one.decide(200), bad_below(0.3))
    one.open()
    one.label(one.decide(200), bad_below(0.8))
    sealed_rows = control.sealed_rows
    other = one.world.open()

    def while_it_is_written(connection: Any, table: Any, keys: Any, **options: Any) -> Any:
        if table.name == "calibration_runs":
            other.policies.close(GATE, by="ana", reason="at this very moment")
        return sealed_rows(connection, table, keys, **options)

    monkeypatch.setattr(control, "sealed_rows", while_it_is_written)
    runs = len(one.runs())
    with pytest.raises(PolicyChanged):
        one.run()
    assert one.policy.state == "closed"
    assert len(one.runs()) == runs, "nothing of the run is left"
    world.close()


def test_a_million_rows_may_be_thought_about_and_no_lock_is_held_so_long(
    migrated_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "FROZEN_SECONDS", 61)
    world = World(migrated_postgres_url)
    database = world.store._database
    with database.reading() as connection:
        limit = sa.text("SHOW idle_in_transaction_session_timeout")
        limits = [connection.scalar(limit)]
        for set_limit in (database.take_time, database.be_brief):
            set_limit(connection)
            limits.append(connection.scalar(limit))
    assert limits == ["61s", "15min", "61s"]
    world.close()


def new_groups(one: LabelledGate, *, recount: bool = False) -> int:
    (found,) = one.store.recalibration_status.statuses(now=one.clock(), recount=recount)
    return found.new_groups


def raised_groups(one: LabelledGate) -> int:
    (found,) = one.store.recalibration_status.statuses(now=one.clock())
    return found.raised_groups


def test_new_groups_are_those_that_the_newest_run_has_not_read_with_a_label(
    site: Callable[..., LabelledGate],
) -> None:
    one = site(label_deadline_seconds=0.0)
    assert new_groups(one) == 0
    first = one.decide(30)
    assert new_groups(one) == 0, "nobody has labelled anything"
    one.label(first[:20], bad_below(0.3))
    assert new_groups(one) == 20
    one.run()
    assert new_groups(one) == 0
    one.label(first[:20], bad_below(0.2), by="bo")
    assert raised_groups(one) == 0, "a second opinion that is no worse"
    one.label(first[:20], bad_below(0.9), days=0.2)
    assert new_groups(one) == 0, "a second opinion is no new group"
    worse = [n for n in first[:20] if 0.3 <= one.score(n) < 0.9]
    assert raised_groups(one) == len(worse) > 5
    one.label(first[20:], bad_below(0.3))
    assert new_groups(one) == 10, "labels that came late"
    more = one.decide(5)
    # Decided before the run, as far as their dates tell: they are read by the labels that came since.
    one.label(more, bad_below(0.3))
    assert new_groups(one) == 15
    one.label([0], bad_below(0.3), by="cy")
    assert new_groups(one) == 15
    one.run()
    assert (new_groups(one), raised_groups(one)) == (0, 0)


def test_labels_that_rise_bring_a_run_about_that_holds_more_and_none_that_holds_less(
    site: Callable[..., LabelledGate],
) -> None:
    one = site(max_lambda_step=1.0, max_ship_rate_step=1.0)
    numbers = one.decide(200)
    one.label(numbers, bad_below(0.3))
    before = one.open()
    schedule = Schedule(time.monotonic)

    def due() -> str | None:
        (found,) = one.store.recalibration_status.statuses(now=one.clock(), recount=False)
        return schedule.due(found, now=one.now)

    assert due() is None
    one.label(numbers, bad_below(0.85), by="ben")
    assert due() == "0 newly labelled groups and 110 with a higher label, 100 are enough"
    assert one.run().outcome == "applied"
    tighter = one.policy
    assert (tighter.threshold or 0) > (before.threshold or 0)
    # Raised a little, and the others turned down: due again, and looser by what the labels say now.
    one.label([n for n in numbers if one.score(n) >= 0.3], lambda _: 0.01, by="cy", days=0.4)
    one.label(numbers, bad_below(0.1), by="ben", days=0.5)
    assert due() is None, "labels that fall bring no run about"
    assert one.run().outcome != "applied"
    assert one.policy == tighter


def test_a_group_counts_once_it_is_old_enough_though_its_label_came_before(
    site: Callable[..., LabelledGate], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = site(label_deadline_seconds=6.0)
    seconds = 1000.0
    monkeypatch.setattr(
        "streamer.store.calibration.recalibration_status.time", SimpleNamespace(monotonic=lambda: seconds)
    )
    one.now = one.start
    assert new_groups(one) == 0
    one.label(one.decide(5), bad_below(0.3))
    found = []
    for _ in range(4):
        found.append(new_groups(one))
        seconds += 3
        one.now += timedelta(seconds=2)  # and one by the reading of the clock
    assert found == [0, 0, 0, 5]


def test_after_a_burst_time_alone_makes_no_new_groups_until_the_label_deadline(
    site: Callable[..., LabelledGate],
) -> None:
    one = site(monitor_deadline_seconds=86_400.0)
    one.now = one.start
    numbers = one.decide(200)
    one.label(numbers[:150], bad_below(0.3))
    one.run()
    read = one.world.rows("SELECT count(*) AS read FROM calibration_inputs")[0].read
    assert 90 <= read <= 110, "as old as the middle draw"
    one.now += timedelta(minutes=1)
    assert new_groups(one, recount=True) == 0, (
        "a run would read the same groups: the middle draw has grown older by a minute too"
    )
    one.label(numbers[150:160], bad_below(0.3))
    one.now += timedelta(minutes=1)
    assert 0 < new_groups(one) <= 10
    one.now = one.start + timedelta(days=1, minutes=3)
    found = new_groups(one, recount=True)
    assert found >= 50, "past the deadline what has no label counts as wrong, and the rest is read"
    one.run()
    assert new_groups(one, recount=True) == 0


def test_other_settings_and_an_alarm_make_every_group_count_anew(site: Callable[..., LabelledGate]) -> None:
    one = site()
    one.label(one.decide(30), bad_below(0.3))
    one.run()
    one.store.gates.revise(GATE, {"mode": "shadow"}, by="ana", reason="no matter")
    assert new_groups(one) == 0
    one.store.gates.revise(GATE, {"alpha": 0.2}, by="ana", reason="another budget")
    assert new_groups(one) == 30
    (found,) = one.store.recalibration_status.statuses(now=one.clock())
    assert not found.last.usable
    one.run()
    assert new_groups(one) == 0
    one.store.policies.close(GATE, by=MONITOR, reason="risk alarm")
    assert new_groups(one) == 0, "what was decided before an alarm is not read any more"
    one.label(one.decide(3), bad_below(0.3))
    assert new_groups(one) == 3


def test_a_gates_status_shows_the_newest_run_and_its_candidates(site: Callable[..., LabelledGate]) -> None:
    one = site(recalibrate="propose")
    one.label(one.decide(200), bad_below(0.3))
    one.run()
    (found,) = one.store.recalibration_status.statuses(now=one.clock())
    assert found.proposed
    assert found.last.groups == 200
    assert {"mean", "crc", "bb", "rbwa", "betting", "age"} <= dict(found.last.candidates).keys()
    assert one.store.recalibration_status.labels_pending() == {GATE: 0}
