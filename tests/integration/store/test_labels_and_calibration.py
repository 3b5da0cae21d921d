"""Which severity counts, what waits for one, and what a calibration reads and leaves behind."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from streamer.calibration import History
from streamer.cli.doctor import _gates
from streamer.errors import UsageError
from streamer.gates.batch_key import BatchKey
from streamer.gates.settings import METHODS
from streamer.recalibration.one_gate import recalibrate_by_hand
from streamer.recalibration.run import NothingToCalibrate, SampleQuery, calibrate_gate
from streamer.recalibration.sampled import SampledGroup
from streamer.settings.settings import Settings
from streamer.store.labels.revisions import Added
from tests.integration.store.conftest import START, World

HOUR = timedelta(hours=1)
LATER = START + 100 * HOUR


def severity(world: World, batch_id: str = "a", response_id: str = "b", kind: str = "human") -> float | None:
    return world.store.labels.severities("support-bot", kind).get(
        BatchKey("support-bot", batch_id, 1), response_id
    )


def test_the_latest_of_each_labeller_counts_and_labellers_are_averaged(world: World) -> None:
    assert severity(world) is None
    added = world.store.labels.add(
        [
            world.label(0.9, "a", at=START + 2 * HOUR), world.label(0.1, "a", at=START),
            world.label(0.3, "a", labeller="bo"), world.label(1.0, "a", kind="judge"),
            world.label(1.0, "a", response_id="a"),
        ],
        now=LATER,
    )  # fmt: skip
    assert added == Added(5, 0)
    assert severity(world) == pytest.approx(0.6)
    assert severity(world, kind="judge") == 1.0


def test_of_two_at_one_moment_the_later_row_counts(world: World) -> None:
    world.store.labels.add([world.label(0.9, "a"), world.label(0.2, "a")], now=LATER)
    assert severity(world) == 0.2


def test_a_label_from_the_future_counts_from_when_it_came(world: World) -> None:
    world.store.labels.add([world.label(1.0, "a", at=START + 1000 * HOUR)], now=START)
    world.store.labels.add([world.label(0.0, "a", at=START + HOUR)], now=START + 2 * HOUR)
    assert severity(world) == 0.0


def test_the_same_label_again_changes_nothing(world: World) -> None:
    label = world.label(0.5, "a")
    assert world.store.labels.add([label, label], now=LATER) == Added(1, 1)
    assert world.store.labels.add([label, replace(label, severity=0.25)], now=LATER) == Added(1, 1)
    assert world.store.labels.counts() == {("support-bot", "human"): 2}


def test_a_label_of_no_gate_stores_nothing(world: World) -> None:
    stray = replace(world.label(0.5, "a"), key=BatchKey("nobody", "a", 1))
    with pytest.raises(UsageError, match="'nobody'"):
        world.store.labels.add([world.label(0.5, "a"), stray])
    assert world.store.labels.counts() == {}


def test_the_queue_holds_drawn_responses_without_a_label_of_the_gates_kind(world: World) -> None:
    lease = world.lease()
    world.commit(
        world.slice(
            lease, world.decision(0, "new", at=START + HOUR),
            world.decision(1, "old", drawn=(0, 1)), world.decision(2, "unsampled", sampled=False),
        )
    )  # fmt: skip
    assert world.store.labels.pending() == {"support-bot": 3}
    queue = world.store.labels.queue()
    wanted = [("old", "a"), ("old", "b"), ("new", "b")]
    assert [(task.key.batch_id, task.response_id) for task in queue] == wanted
    assert (queue[0].prompt, queue[0].references, queue[0].kind) == ("prompt one", ("ref", "other"), "human")
    assert queue[0].decided_at == START
    world.store.labels.add([world.label(0, "old"), world.label(0, "new", kind="judge")], now=LATER)
    found = [(t.key.batch_id, t.response_id) for t in world.store.labels.queue("support-bot")]
    assert found == [("old", "a"), ("new", "b")]
    assert world.store.labels.queue(limit=1) == queue[:1]
    assert world.store.labels.queue(after=queue[0]) == queue[2:], "the second one was labelled meanwhile"
    assert world.store.labels.queue(after=queue[1]) == queue[2:]
    assert world.store.labels.queue(after=queue[-1]) == []
    assert world.store.labels.queue("other") == []
    view = world.rows("SELECT batch_id, response_id, kind, prompt FROM v_label_queue ORDER BY decided_at")
    assert view == [("old", "a", "human", "prompt one"), ("new", "b", "human", "prompt one")]
    # Another kind controls the gate now: what judges said counts, what people said does not.
    world.store.gates.revise("support-bot", {"severity_kind": "judge"}, by="bo", reason="")
    assert [t.key.batch_id for t in world.store.labels.queue()] == ["old", "old"]


def test_below_the_label_floor_nothing_is_asked_for_and_nothing_is_pending(world: World) -> None:
    policy = world.gate("floored", label_floor=0.5, unit="response", alpha=0.4)
    world.keep(
        *(
            world.decision(
                n, f"b{n}", policy=policy, scores=(0.5, 0.6), drawn=(0, 1), sampling_probability=1.0
            )
            for n in range(20)
        )
    )
    assert {(t.key.gate, t.response_id) for t in world.store.labels.queue("floored")} == {("floored", "b")}
    assert world.store.labels.pending() == {"floored": 20, "support-bot": 0}
    assert world.rows("SELECT DISTINCT response_id FROM v_label_queue") == [("b",)]
    world.store.labels.add(
        [world.label(0, f"b{n}", key=BatchKey("floored", f"b{n}", 1)) for n in range(20)], now=START
    )
    assert world.rows("SELECT labelled_batches, pending_batches, exposure_risk FROM v_risk") == [(20, 0, 0.0)]
    run = calibrate_gate(world.store.calibration, world.store.gates.get("floored"), now=LATER, heads=())
    assert (run.drawn, run.labelled, run.missing) == (40, 20, 0)
    assert run.decided.value == 0.5
    assert "had no label" not in run.guarantee


def test_where_the_encoder_reads_nothing_no_label_is_asked_for(world: World) -> None:
    one = {"policy": world.gate("unread", method="mean"), "scores": None, "sampled": False}
    world.keep(*(world.decision(n, f"b{n}", reason="not_read", **one) for n in range(5)))
    with pytest.raises(NothingToCalibrate, match=r"not read 5 of the newest 5 .* the method full [^`]*$"):
        calibrate_gate(world.store.calibration, world.store.gates.get("unread"), now=LATER)


def test_batches_with_fewer_answers_than_calibrated_are_counted(world: World) -> None:
    policy = world.gate("few", alpha=0.4, method="mean", audit_probability=1.0)
    two = [world.decision(n, f"b{n}", policy=policy, sampling_probability=1.0) for n in range(20)]
    alone = {"policy": policy, "scores": (0.5,), "actions": ("abstain",), "sampled": False}
    world.keep(*two, *(world.decision(n, f"b{n}", **alone) for n in range(20, 23)))
    world.store.labels.add([world.label(0, "", key=one.key) for one in two], now=START)
    parts = (world.store.calibration, world.store.policies, world.store.gates.get("few"))
    recalibrate_by_hand(*parts, clock=lambda: LATER, by="ana", reason="try")
    said = [one.text for one in _gates(Settings(database={"url": world.url}))]
    wanted = "fewer answers than any prompt that calibrated (at least 2): 3 of 23 recent batches"
    assert wanted in said


def test_segments_and_ranks_come_from_the_record(world: World) -> None:
    policy = world.gate("kinds", unit="response", segment_by="language", method="mean")
    world.keep(
        world.decision(0, "de", policy=policy, metadata={"language": "de"}, drawn=(0, 1)),
        world.decision(1, "seven", policy=policy, metadata={"language": 7}, drawn=(0, 1)),
        world.decision(2, "none", policy=policy, metadata={}, drawn=(0, 1), segment=""),
    )

    def found(**changes: Any) -> list[SampledGroup]:
        settings = replace(policy.settings, **changes)
        return list(world.store.calibration.audit_sample(SampleQuery("kinds", settings, LATER)))

    assert [group.segment for group in found()] == ["de", "7", ""]
    assert [group.draws for group in found()] == [policy.settings.audit_draws] * 3
    assert {group.segment for group in found(segment_by=None)} == {None}
    ranked = found(segment_by=None, shape="rank")
    assert [[item.score for item in group.items] for group in ranked] == [[0.0, 0.5]] * 3
    # Once texts are erased, only what the decision recorded tells the segment.
    world.tamper(
        """UPDATE batches SET erased_at = created_at, prompt = NULL, "references" = NULL, metadata = NULL,
           content_hash = NULL, salt = NULL"""
    )
    assert [(group.key.batch_id, group.segment) for group in found()] == [("none", "")]
    assert found(segment_by="country") == []


def test_a_label_may_overtake_its_decision(world: World) -> None:
    world.store.labels.add([world.label(0.5, "a")], now=START)
    assert world.store.labels.queue() == []
    world.keep(world.decision(0, "a"))
    assert world.store.labels.queue() == []
    settings = world.store.gates.get("support-bot").settings
    (group,) = world.store.calibration.audit_sample(SampleQuery("support-bot", settings, LATER))
    assert group.items[0].severity == 0.5


def test_the_audit_sample_is_what_these_settings_can_be_calibrated_on(world: World) -> None:
    lease = world.lease()
    world.commit(
        world.slice(
            lease, world.decision(0, "second", at=START + HOUR, sampling_probability=0.25),
            world.decision(1, "first", scores=(0.9, 0.125)),
            world.decision(2, "unsampled", sampled=False),
            world.decision(3, "unscored", scores=None),
            world.decision(4, "encoder", encoder="other@1"),
            world.decision(5, "scorer", scorer="external"), world.decision(6, "first", attempt=2),
            world.decision(7, "young", at=LATER),
        )
    )  # fmt: skip
    world.store.labels.add([world.label(0.5, "first"), world.label(1, "first", response_id="a")], now=START)
    settings = world.store.gates.get("support-bot").settings
    first, second = world.store.calibration.audit_sample(SampleQuery("support-bot", settings, LATER))
    assert (first.key.batch_id, first.probability) == ("first", 0.5)
    assert [(i.response_id, i.score, i.severity) for i in first.items] == [("b", 0.125, 0.5)]
    assert [(i.response_id, i.score, i.severity) for i in second.items] == [("b", 0.75, None)]
    assert second.probability == 0.25
    other = replace(settings, unit="response")
    assert world.store.calibration.audit_sample(SampleQuery("support-bot", other, LATER)) == []


def test_unit_batch_is_calibrated_on_the_rounded_mean(world: World) -> None:
    policy = world.gate("b", unit="batch")
    world.keep(world.decision(0, policy=policy, scores=(0.1, 0.2, 0.2), actions=("abstain",) * 3, drawn=(2,)))
    (group,) = world.store.calibration.audit_sample(SampleQuery("b", policy.settings, LATER))
    assert [(i.response_id, i.score) for i in group.items] == [("c", 0.166667)]


def fill(world: World, count: int = 60) -> None:
    world.keep(*(world.decision(n, f"b{n}", scores=(0.0, (n + 1) / (count + 1))) for n in range(count)))
    world.store.labels.add(
        [world.label(float(n < count // 3), f"b{n}") for n in range(count - 1)], source="file", now=START
    )


def test_a_run_leaves_its_inputs_its_candidates_and_the_policy(world: World) -> None:
    fill(world)
    gate = world.store.gates.get("support-bot")
    run = calibrate_gate(world.store.calibration, gate, now=LATER, heads=())
    policy = world.store.calibration.record_run(run, by="bo", reason="weekly", now=LATER)
    assert (policy.version, policy.state, policy.calibrated) == (2, "cut", True)
    assert policy.threshold == run.decided.value
    assert world.store.policies.newest("support-bot") == policy
    assert policy.calibration_run is not None
    stored = world.store.calibration.inputs(policy.calibration_run)
    assert {group.key: group for group in stored} == {group.key: group for group in run.groups}
    assert world.rows("SELECT groups, items, missing, state FROM calibration_runs") == [(60, 60, 1, "cut")]
    candidates = world.rows("SELECT method, decides FROM calibration_candidates ORDER BY method")
    assert [(method, bool(decides)) for method, decides in candidates] == [
        (method, method == "mean") for method in sorted({*METHODS, "clt"} - {"full"})
    ]
    assert [m.key for m in world.store.unpublished([], limit=9)] == [b"support-bot"] * 2
    with pytest.raises(UsageError, match="no calibration run"):
        world.store.calibration.inputs(99)


def test_a_run_for_settings_that_changed_meanwhile_is_refused_whole(world: World) -> None:
    fill(world)
    run = calibrate_gate(world.store.calibration, world.store.gates.get("support-bot"), now=LATER, heads=())
    world.store.gates.revise("support-bot", {"alpha": 0.2}, by="ana", reason="")
    with pytest.raises(UsageError, match="run again"):
        world.store.calibration.record_run(run, by="bo", reason="", now=LATER)
    assert world.rows("SELECT count(*) FROM calibration_runs") == [(0,)]


def test_labels_of_what_nobody_recorded_are_told(world: World) -> None:
    world.keep(world.decision(0, "recorded"))
    found = world.label(0.5, "recorded", response_id="a")
    wrong = [world.label(0.5, "recorded", response_id="zz"), world.label(0.5, "elsewhere")]
    assert world.store.labels.unrecorded([found, *wrong]) == wrong
    assert world.store.labels.unrecorded([]) == []


def test_a_proposal_waits_and_only_the_newest_can_be_put_in_force(world: World) -> None:
    fill(world)
    store = world.store.calibration
    assert store.proposal("support-bot") is None
    with pytest.raises(UsageError, match="nothing is proposed"):
        store.activate("support-bot", by="bo", reason="", now=LATER)

    def propose() -> int:
        run = calibrate_gate(store, world.store.gates.get("support-bot"), now=LATER, heads=())
        return store.record_only(run, "proposed", by="ana", now=LATER)

    first, second = propose(), propose()
    assert world.store.policies.newest("support-bot").version == 1, "a proposal changes nothing"
    found = store.proposal("support-bot")
    wanted = (second, "cut", 60, 60, 1)
    assert (found.run, found.cut.state, found.groups, found.items, found.missing) == wanted
    with pytest.raises(UsageError, match=f"run {first} is not what is proposed"):
        store.activate("support-bot", first, by="bo", reason="", now=LATER)
    policy = store.activate("support-bot", second, by="bo", reason="approved", now=LATER)
    assert (policy.version, policy.calibration_run, policy.threshold) == (2, second, found.cut.threshold)
    assert (policy.guarantee, policy.rule) == (found.guarantee, found.rule)
    assert store.proposal("support-bot") is None
    with pytest.raises(UsageError, match="nothing is proposed"):
        store.activate("support-bot", second, by="bo", reason="", now=LATER)


def test_a_run_that_says_not_how_high_the_chains_were_is_refused(world: World) -> None:
    fill(world)
    run = calibrate_gate(world.store.calibration, world.store.gates.get("support-bot"), now=LATER)
    with pytest.raises(ValueError, match="how high the chains were: give `calibrate_gate` its `heads`"):
        world.store.calibration.record_only(run, "proposed", by="ana", now=LATER)


def test_a_proposal_outlives_a_change_of_mode_and_not_one_of_the_budget(world: World) -> None:
    fill(world)
    store = world.store.calibration
    run = calibrate_gate(store, world.store.gates.get("support-bot"), now=LATER, heads=())
    store.record_only(run, "proposed", by="ana", now=LATER)
    world.store.gates.revise("support-bot", {"alpha": 0.4}, by="bo", reason="")
    with pytest.raises(UsageError, match=r"different settings .*alpha"):
        store.activate("support-bot", by="bo", reason="", now=LATER)
    world.store.gates.revise("support-bot", {"alpha": run.gate.settings.alpha}, by="bo", reason="")
    world.store.gates.revise("support-bot", {"hold_action": "escalate"}, by="bo", reason="")
    policy = store.activate("support-bot", by="bo", reason="", now=LATER)
    assert policy.settings.hold_action == "escalate"
    with pytest.raises(UsageError, match="changed to revision"):
        store.record_only(run, "proposed", by="ana", now=LATER)


def test_prompts_that_were_not_drawn_fix_the_cuts_of_a_run(world: World) -> None:
    """Their best scores are the history; what the audit drew, later attempts and other scores are none of it."""
    policy = world.gate("walk", method="selective", alpha=0.6, scorer="external", encoder="none")

    def batch(n: int, score: float, **changes: Any) -> Any:
        return world.decision(n, f"w{n}", policy=policy, scores=(score / 2, score), **changes)

    world.keep(
        *(batch(n, (n + 1) / 40, sampled=False, sampling_probability=0.3) for n in range(40)),
        *(batch(n, 0.9, sampling_probability=0.3) for n in range(40, 80)),
        batch(80, 1.0, sampled=False, attempt=2, sampling_probability=0.3),
        batch(81, 1.0, sampled=False, at=LATER, sampling_probability=0.3),
        batch(82, 1.0, sampled=False, scorer="gram", encoder="e@12345678", sampling_probability=0.3),
    )
    world.store.labels.add(
        [world.label(float(n % 9 == 0), f"w{n}", key=BatchKey("walk", f"w{n}", 1)) for n in range(40, 80)],
        now=START,
    )
    gate = world.store.gates.get("walk")
    run = calibrate_gate(world.store.calibration, gate, now=LATER, heads=())
    assert run.history == History.of([(n + 1) / 40 for n in range(40)])
    assert run.history.cuts[0] == 0.7
    assert (run.decided.state, run.decided.value) == ("cut", 0.0)
    assert "8 cuts that would ship 30 to 100 % of 40 unlabelled prompts" in run.guarantee
    world.store.calibration.record_run(run, by="bo", reason="", now=LATER)
    kept = world.rows("SELECT history FROM calibration_runs")[0][0]
    assert History.from_json(json.loads(kept)) == run.history
    newest = world.store.calibration.undrawn_history(SampleQuery("walk", gate.settings, LATER), most=30)
    assert newest == History.of([(n + 1) / 40 for n in range(10, 40)])


def test_every_drawn_response_is_listed_labelled_or_not_under_its_gates_present_kind(world: World) -> None:
    world.keep(*(world.decision(n, f"b-{n}", drawn=(0, 1), sampled=n != 1) for n in range(3)))
    world.store.labels.add([world.label(1.0, "b-0", response_id="a")])
    world.gate("other")
    wanted = {(BatchKey("support-bot", f"b-{n}", 1), name) for n in (0, 2) for name in "ab"}
    for kind in ("human", "doctor"):
        if kind != "human":
            world.store.gates.revise("support-bot", {"severity_kind": kind}, by="ana", reason="others label")
        found = world.store.labels.drawn("support-bot")
        assert {(one.key, one.response_id) for one in found} == wanted
        assert {one.kind for one in found} == {kind}
        assert world.store.labels.drawn("other") == []
        assert sorted(world.store.labels.drawn()) == sorted(found)
