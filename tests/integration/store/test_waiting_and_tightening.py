"""On real records: draws that are too young, thresholds that tighten between runs, looser ones that wait, no skill."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from streamer.audit.bundle import write_bundle
from streamer.audit.rederive import contradiction
from streamer.cli.recalibrate import print_report
from streamer.events.alerts import AlertsV1
from streamer.recalibration.comparison import Reading
from streamer.recalibration.one_gate import recalibrate_by_hand, recalibrate_by_rule, tighten_by_rule
from streamer.recalibration.run import calibrate_gate
from streamer.risk.rounds.watch import RiskWatch
from streamer_verify.bundle import Bundle
from streamer_verify.command import verify_bundle as by_one_file
from streamer_verify.waits import Served, Waits
from tests.integration.audit.alone import in_javascript, need_node
from tests.integration.audit.attacker import breaking_in, rebuild_control
from tests.integration.audit.history import KEYS
from tests.integration.store.conftest import START, World
from tests.integration.store.labelled_gate import GATE, LabelledGate, bad_below
from tests.integration.watching.conftest import Shown


@pytest.fixture
def site(new_world: Callable[..., World]) -> Callable[..., LabelledGate]:
    return lambda **settings: LabelledGate(new_world(), **settings)


def label_late(
    one: LabelledGate, numbers: list[int], severity: Callable[[float], float], hours: float
) -> None:
    """Labels that are received so many hours after the first decision."""
    one.world.clock.now = max(one.world.clock.now, START + timedelta(hours=hours))
    one.label(numbers, severity)


def look(one: LabelledGate) -> Any:
    one.now += timedelta(hours=1)
    return tighten_by_rule(
        one.store.calibration, one.store.policies, one.store.gates.get(GATE), clock=one.clock
    )


def replayed(one: LabelledGate, run: int, **changes: Any) -> str | None:
    """What `audit verify` finds of a stored run."""
    rows = one.world.rows("SELECT * FROM calibration_runs ORDER BY id")
    row = next(found for found in rows if found.id == run)._asdict() | changes
    row |= {name: moment(row[name]).isoformat() for name in ("started_at", "older_than")}
    candidates = [
        found._asdict() for found in one.world.rows(f"SELECT * FROM calibration_candidates WHERE run = {run}")
    ]
    record = one.store.calibration
    served = {policy.version: Reading.of_policy(policy) for policy in one.store.policies.list(GATE)}
    return contradiction(
        row, candidates, gate=one.store.gates.get(GATE), inputs=record.inputs, served=served.get
    )


def waits_kept(one: LabelledGate, run: int | None = None, **changes: Any) -> list[str]:
    """What `audit verify` finds of the waits, after a change of one run's row."""
    waits, found = Waits(), []
    policies = [row._asdict() for row in one.world.rows("SELECT * FROM policies ORDER BY version")]
    for stored in one.world.rows("SELECT * FROM calibration_runs ORDER BY id"):
        row = stored._asdict() | (changes if stored.id == run else {})
        for name in ("started_at", "held_until"):
            row[name] = row[name] and moment(row[name]).isoformat(timespec="microseconds")
        while policies and (policies[0]["calibration_run"] or 0) < row["id"]:
            waits.policy(policies.pop(0))
        candidates = one.world.rows(
            f"SELECT * FROM calibration_candidates WHERE run = {row['id']} AND decides"
        )
        if (wrong := waits.run(row, Served.of(candidates[0]._asdict()))) is not None:
            found.append(wrong)
    return found


def moment(value: Any) -> Any:
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def test_young_draws_are_not_used_and_older_ones_without_a_label_count_as_wrong(
    site: Callable[..., LabelledGate],
) -> None:
    one = site()
    numbers = one.decide(200)
    one.label([n for n in numbers if n < 160 and n not in (3, 5, 7)], bad_below(0.3))
    gate = one.store.gates.get(GATE)
    run = calibrate_gate(one.store.calibration, gate, now=one.clock())
    # No draws came before the sample: half of it is old enough.
    assert (len(run.groups), run.missing, run.age_cut.because) == (100, 3, "age of the middle draw")
    assert (run.age_cut.unused, run.age_cut.unused_labelled) == (100, 60)
    said = run.age_cut.said(run.missing, GATE)
    assert said.startswith("60 labels of the newest")
    assert said.endswith("(40 more wait there); 3 older ones count as wrong")
    assert "in or out by their age alone" in run.guarantee
    one.open()
    assert replayed(one, 1) is None
    assert replayed(one, 1, age_cut=run.age_cut.to_json() | {"unused": 0}) is not None
    one.label(numbers, bad_below(0.3))
    assert len(calibrate_gate(one.store.calibration, gate, now=one.clock()).groups) == 200, "nothing waits"


@pytest.mark.parametrize("settings", [{}, {"window": 150}, {"label_deadline_seconds": 86_300.0}], ids=str)
def test_a_few_labels_that_would_bring_in_much_are_named(
    site: Callable[..., LabelledGate], settings: dict[str, Any]
) -> None:
    one = site(**settings)
    numbers = one.decide(200)
    one.label([n for n in numbers if n not in (7, 150, 151, 190)], bad_below(0.3))
    one.open()
    run = calibrate_gate(one.store.calibration, one.store.gates.get(GATE), now=one.clock())
    whole = settings.get("window", 200)
    remedy = f"labels for the 4 prompts that wait (`streamer label queue --gate {GATE}`) would bring in all {whole} prompts"
    told = "label_deadline_seconds" not in settings
    said = one.store.calibration.waiting(GATE)
    assert said is not None
    assert said.endswith(remedy) == told
    assert (f"{remedy[1:]}." in run.guarantee) == told
    assert replayed(one, one.runs()[-1].id) is None
    one.label(numbers, bad_below(0.3))
    assert (len(calibrate_gate(one.store.calibration, run.gate, now=one.clock()).groups) == whole) == told


@pytest.mark.parametrize(("pending", "groups", "missing"), [("worst", 200, 100), ("labelled-only", 100, 0)])
def test_other_ways_are_explicit(
    site: Callable[..., LabelledGate], pending: str, groups: int, missing: int
) -> None:
    one = site(pending=pending)
    one.label(one.decide(200)[:100], bad_below(0.3))
    one.open()
    run = one.runs()[-1]
    found = one.world.rows("SELECT groups, missing FROM calibration_runs")[-1]
    assert (found.groups, found.missing) == (groups, missing)
    wanted = pending == "labelled-only"
    assert ("breaks the budget if they get them later" in one.policy.guarantee) == wanted
    assert replayed(one, run.id) is None


def test_a_window_reads_the_newest_groups_alone(site: Callable[..., LabelledGate]) -> None:
    one = site(window=100)
    one.label(one.decide(150), bad_below(0.9))
    one.label(one.decide(100), bad_below(0.2))
    one.open()
    assert one.policy.threshold is not None
    assert one.policy.threshold < 0.2
    assert "Only the newest 100 prompts were read" in one.policy.guarantee
    assert replayed(one, 1) is None
    assert waits_kept(one) == []


def test_between_runs_a_gate_tightens_where_the_newest_are_worse_and_the_run_can_be_derived_again(
    site: Callable[..., LabelledGate],
) -> None:
    one = site()
    one.label(one.decide(300), bad_below(0.3))
    before = one.open()
    assert look(one) is None
    one.label(one.decide(60), bad_below(0.7))
    done = look(one)
    assert done.outcome == "applied"
    assert "the newest groups are worse" in done.why
    after = one.policy
    assert after.threshold is not None
    assert before.threshold is not None
    assert after.threshold > before.threshold + 0.1
    assert after.reason == done.why
    assert "which is stricter than that of all" in after.guarantee
    run = one.runs()[-1].id
    assert replayed(one, run) is None
    assert "pairs" in str(replayed(one, run, suffix=done.run.suffix.to_json() | {"worse": 1}))
    # Under a new version pairs are drawn anew. Of 1,500 gates 14 found fewer of the newest to be worse still, and got tighter.
    while look(one) is not None:
        assert one.policy.threshold is not None
        assert one.policy.threshold > after.threshold
        after = one.policy
    assert after.version <= 5, "nothing new, and nothing stricter"


def test_under_the_rule_propose_a_tighter_threshold_waits_for_a_person_once(
    site: Callable[..., LabelledGate],
) -> None:
    one = site(recalibrate="propose")
    one.label(one.decide(300), bad_below(0.3))
    before = one.open()
    one.label(one.decide(60), bad_below(0.7))
    assert look(one).outcome == "proposed"
    assert look(one) is None
    assert one.policy.version == before.version


def test_a_looser_threshold_waits_for_one_label_lag_and_is_tested_again(
    site: Callable[..., LabelledGate],
) -> None:
    one = site()
    label_late(one, one.decide(200), bad_below(0.35), hours=6)
    before = one.open()
    label_late(one, one.decide(60), bad_below(0.0), hours=6)
    done = one.run()
    assert (done.outcome, one.policy.version) == ("proposed", before.version)
    until = done.run.held_until
    assert until is not None
    assert timedelta(hours=5) < until - done.run.started_at <= timedelta(hours=6)
    assert f"it waits for one label lag, until {until:%Y-%m-%d %H:%M:%SZ}" in done.why
    assert one.store.calibration.proposal(GATE).held_until == until
    (status,) = one.store.recalibration_status.statuses(now=one.clock())
    assert status.held_until == until
    # Another run meanwhile keeps the wait, and does not begin it anew.
    again = one.run()
    assert (again.outcome, again.run.held_until) == ("proposed", until)
    one.now = until
    last = one.run()
    assert (last.outcome, one.policy.version) == ("applied", before.version + 1)
    assert "has waited for one label lag" in last.why
    assert waits_kept(one) == []
    first, second, third = (stored.id for stored in one.runs()[-3:])
    later = (last.run.started_at + timedelta(hours=1)).isoformat(timespec="microseconds")
    assert f"came into force before {later}" in str(waits_kept(one, second, held_until=later))
    assert f"since run {second}, which began no wait" in str(waits_kept(one, second, held_until=None))
    assert "only a proposal waits" in str(waits_kept(one, first, outcome="applied"))
    assert "only a proposal waits" in str(waits_kept(one, third, held_until=later))


@pytest.mark.node
def test_both_verifiers_of_a_bundle_follow_the_waits(
    site: Callable[..., LabelledGate], tmp_path: Path
) -> None:
    need_node()
    one = site()
    label_late(one, one.decide(200), bad_below(0.35), hours=6)
    one.open()
    label_late(one, one.decide(60), bad_below(0.0), hours=6)
    until = one.run().run.held_until
    assert until is not None
    one.now = until
    assert one.run().outcome == "applied"
    first, second = (stored.id for stored in one.runs()[-2:])

    def said(name: str) -> list[str]:
        """What both say of waits; the decisions themselves were never made by a worker."""
        with one.store.evidence.snapshot() as snapshot:
            write_bundle(snapshot, tmp_path / name, keys=KEYS, made_at="2026-01-01T00:00:00.000000Z")
        alone = [fault["detail"] for fault in by_one_file(Bundle(tmp_path / name), KEYS, None).faults]
        theirs = [fault["detail"] for fault in in_javascript(tmp_path / name, None)["faults"]]
        found = [[detail for detail in details if "wait" in detail] for details in (alone, theirs)]
        assert found[0] == found[1]
        return found[0]

    assert said("honest") == []
    for name, statement, expected in (
        ("later", "held_until = '2036-01-01 00:00:00'", f"until when run {first} has it wait"),
        ("none", "held_until = NULL", f"since run {first}, which began no wait that ran then"),
        ("applied", "outcome = 'applied', held_until = '2036-01-01 00:00:00'", "only a proposal waits"),
    ):
        with breaking_in(one.world.url) as connection:
            connection.exec_driver_sql(f"UPDATE calibration_runs SET {statement} WHERE id = {first}")
            rebuild_control(connection)
        assert any(expected in detail for detail in said(name)), name
    assert second > first


@pytest.mark.node
def test_a_policy_of_a_clock_that_is_behind_ends_no_wait(
    site: Callable[..., LabelledGate], tmp_path: Path
) -> None:
    """Somebody's machine is five seconds behind the recalibrator's, which goes on to wait: both verifiers see why."""
    need_node()
    one = site()
    label_late(one, one.decide(200), bad_below(0.35), hours=6)
    before = one.open()
    label_late(one, one.decide(60), bad_below(0.0), hours=6)
    held = one.run().run
    assert held.held_until is not None
    behind = held.started_at - timedelta(seconds=5)
    one.store.policies.rollback(GATE, before.version, by="ana", reason="a test", now=behind)
    one.now = held.held_until
    done = one.run()
    assert (done.outcome, "has waited for one label lag" in done.why) == ("applied", True)
    with one.store.evidence.snapshot() as snapshot:
        write_bundle(snapshot, tmp_path / "bundle", keys=KEYS, made_at="2026-01-01T00:00:00.000000Z")
    alone = [fault["detail"] for fault in by_one_file(Bundle(tmp_path / "bundle"), KEYS, None).faults]
    theirs = [fault["detail"] for fault in in_javascript(tmp_path / "bundle", None)["faults"]]
    assert [detail for detail in (*alone, *theirs) if "wait" in detail] == []


def test_where_the_newest_labels_are_worse_a_waiting_threshold_is_dropped(
    site: Callable[..., LabelledGate],
) -> None:
    one = site(max_lambda_step=1.0, max_ship_rate_step=1.0)
    label_late(one, one.decide(200), bad_below(0.35), hours=6)
    before = one.open()
    label_late(one, one.decide(200), bad_below(0.0), hours=6)
    held = one.run().run.held_until
    assert held is not None
    one.label(one.decide(60), bad_below(0.6))
    one.now = held
    done = one.run()
    assert done.run.held_until is None
    assert "it holds more than before" in done.why
    assert "the newest groups are worse" in done.why
    assert one.policy.threshold is not None
    assert before.threshold is not None
    assert one.policy.threshold > before.threshold
    assert waits_kept(one) == []


def test_a_gate_whose_score_does_not_separate_does_not_open_by_itself(
    site: Callable[..., LabelledGate],
) -> None:
    one = site(max_lambda_step=1.0, max_ship_rate_step=1.0, alpha=0.1)
    numbers = one.decide(300)
    # One in four is bad, whatever its score.
    bad = {n for n in numbers if (n * 61 + 7) % 4 == 0}
    one.label([n for n in numbers if n in bad], lambda _score: 1.0)
    one.label([n for n in numbers if n not in bad], lambda _score: 0.0)
    done = one.run()
    assert done.outcome == "proposed"
    assert "it is not shown that the score tells good from bad" in done.why
    assert "which may be chance: a gate does not open by itself then" in done.why
    assert one.policy.state == "closed"


def test_labels_that_are_missing_at_low_scores_are_told_of(
    site: Callable[..., LabelledGate], capsys: pytest.CaptureFixture[str]
) -> None:
    one = site(monitor_deadline_seconds=3600.0)
    numbers = one.decide(300)
    one.label([n for n in numbers if one.score(n) > 0.2], bad_below(0.3))
    told: list[AlertsV1] = []
    one.now += timedelta(hours=2)
    recalibrate_by_rule(
        one.store.calibration,
        one.store.policies,
        one.store.gates.get(GATE),
        clock=one.clock,
        raise_alert=told.append,
    )
    assert [(found.kind, found.level) for found in told] == [("labels_not_at_random", "ticket")]
    assert "missing more often at low scores" in told[0].message
    capsys.readouterr()
    by_hand = recalibrate_by_hand(
        one.store.calibration, one.store.policies, one.store.gates.get(GATE),
        clock=one.clock, by="ana", reason="look", dry_run=True,
    )  # fmt: skip
    print_report(by_hand, None, explain=False)
    shown = capsys.readouterr()
    assert "Labels are missing more often at low scores" in " ".join((shown.out + shown.err).split())


def test_a_labeller_whose_answers_stay_without_a_label_is_told_of(site: Callable[..., LabelledGate]) -> None:
    one = site(monitor_deadline_seconds=3600.0)
    numbers = one.decide(300)
    one.world.tamper(
        *(
            "INSERT INTO review_offers (token, batch, position, labeller, kind, offered_at, marks)"
            f" SELECT 't{n}', r.batch, r.position, '{'ana' if n % 3 else 'eve'}', 'human', d.decided_at, 0"
            " FROM responses r JOIN decisions d ON d.batch = r.batch JOIN batches b ON b.id = r.batch"
            f" WHERE b.batch_id = 'b{n}'"
            for n in numbers
        )
    )
    one.label([n for n in numbers if n % 3], bad_below(0.3))
    told: list[AlertsV1] = []
    one.now += timedelta(hours=2)
    gate = one.store.gates.get(GATE)
    recalibrate_by_rule(
        one.store.calibration, one.store.policies, gate, clock=one.clock, raise_alert=told.append
    )
    (alert,) = told
    assert (alert.kind, dict(alert.details)["labeller"]) == ("labels_not_at_random", "eve")


def test_nothing_is_loosened_while_no_alarm_reads_what_is_decided(site: Callable[..., LabelledGate]) -> None:
    one = site(max_lambda_step=1.0, max_ship_rate_step=1.0)
    label_late(one, one.decide(200), bad_below(0.35), hours=6)
    before = one.open()
    watcher = RiskWatch(one.store.monitoring, alerts=one.store.alerts, observer=Shown())
    watcher.watch(GATE, now=one.clock())
    label_late(one, one.decide(200), bad_below(0.0), hours=6)
    done = one.run()
    assert (done.outcome, done.run.held_until, one.policy.version) == ("proposed", None, before.version)
    assert "watching stands still: no alarm has read what was decided since" in done.why
    watcher.watch(GATE, now=one.clock())
    assert "watching stands still" not in one.run().why
