"""What the record says, dead letters, and the rules that the database itself keeps."""

import pytest
from sqlalchemy import exc

from streamer.errors import UsageError
from streamer.events.alerts import alert
from streamer.gates.policy import CandidateDecision
from streamer.journal import DataGap
from streamer.scoring.encoders.identity import EncoderIdentity
from streamer.store.db.schema import views
from tests.integration.store.conftest import SETTINGS, START, World
from tests.recorded import ledgers_of, newest_decisions, risk_estimates


def test_the_ledger_tells_ranges_gaps_and_kinds(world: World) -> None:
    lease = world.lease()
    world.commit(world.slice(lease, *(world.decision(n) for n in (0, 1, 2, 5, 6)), world.dead(8)))
    world.store.record_gap(lease, DataGap(lease.partition, 9, 20))
    (ledger,) = ledgers_of(world.store)
    assert ledger.partition == lease.partition
    assert ledger.ranges == ((0, 2), (5, 6), (8, 8))
    assert ledger.gaps == ((9, 19),)
    assert ledger.kinds == {"decision": 5, "dead_letter": 1}
    assert (ledger.next_offset, ledger.log_size, ledger.epoch) == (20, 6, 1)
    assert ledgers_of(world.store, "another log") == []


def test_counts_and_the_recent(world: World) -> None:
    policy = world.gate("open-bot")
    world.keep(
        world.decision(0, "x", actions=("abstain", "ship"), policy=policy),
        world.decision(1, "y", policy=policy, scores=None),
        world.decision(2, "y", policy=policy, attempt=2),
        world.decision(3, "none", policy=policy, actions=(), scores=None),
    )
    reports = world.store.reports
    assert reports.decided_and_shipped("open-bot") == (4, 1)
    assert reports.decided_and_shipped("support-bot") == (0, 0)
    decided = reports.decided_batches("open-bot")
    assert decided["x"].scores == (0.25, 0.75)
    assert decided["x"].shipped == (False, True)
    assert decided["y"].scores == (None, None)
    assert reports.outbox_pending() == 6
    empty, newest, _, oldest = newest_decisions(world.store, "open-bot")
    assert (empty.batch_id, empty.responses, empty.shipped, empty.best_score) == ("none", 0, 0, None)
    with reports.table("decisions", gate="open-bot") as (columns, pages):
        *_, exported = (dict(zip(columns, row, strict=True)) for page in pages for row in page)
    assert [exported[name] for name in ("batch_id", "responses", "mean_score")] == ["none", 0, None]
    assert (newest.batch_id, newest.attempt, newest.offset, newest.decided_at) == ("y", 2, 2, START)
    assert (oldest.selected, oldest.best_score, oldest.responses, oldest.shipped) == ("b", 0.75, 2, 1)
    assert oldest.threshold is None
    assert oldest.sampled is True
    assert newest_decisions(world.store, "nobody") == []


VIEWS = {
    "v_decisions": " ".join(views.DECISIONS.selected_columns.keys()),
    "v_label_queue": "gate batch_id attempt response_id kind decided_at prompt text references sampling_probability",
    "v_risk": "gate policy_version unit severity_kind labelled_batches pending_batches served_ratio exposure_risk"
    " selective_risk",
    "v_risk_intervals": "gate sequence began_at read_at period_days ended unit severity_kind budget delta decisions"
    " labelled overdue exposure_lower exposure exposure_upper selective_lower selective selective_upper budget_is"
    " read_through late alarms_raised",
    "v_severities": "gate batch_id attempt response_id kind severity labellers effective_at",
}


@pytest.mark.parametrize("view", VIEWS)
def test_views_keep_their_columns(world: World, view: str) -> None:
    with world.store._database.reading() as connection:
        assert list(connection.exec_driver_sql(f"SELECT * FROM {view}").keys()) == VIEWS[view].split()


def test_risk_weighs_each_batch_by_its_probability(world: World) -> None:
    shipped = {"actions": ("abstain", "ship")}
    world.keep(
        world.decision(0, "a", sampling_probability=0.5, **shipped),
        world.decision(1, "b", sampling_probability=0.25, **shipped),
        world.decision(2, "c", sampling_probability=0.5),
        world.decision(3, "d", sampling_probability=0.5),
    )
    world.store.labels.add([world.label(1, "a"), world.label(0.5, "b"), world.label(1, "c")], now=START)
    (risk,) = risk_estimates(world.store, "support-bot")
    assert (risk.policy_version, risk.unit, risk.severity_kind) == (1, "best", "human")
    assert (risk.labelled_batches, risk.pending_batches) == (3, 1)
    assert risk.served_ratio == pytest.approx(6 / 8)
    assert risk.exposure_risk == pytest.approx((2 * 1 + 4 * 0.5) / 8)
    assert risk.selective_risk == pytest.approx((2 * 1 + 4 * 0.5) / 6)
    assert risk_estimates(world.store, "nobody") == []


def test_risk_of_nothing_labelled_is_none(world: World) -> None:
    world.keep(world.decision(0))
    (risk,) = risk_estimates(world.store)
    found = (risk.pending_batches, risk.exposure_risk, risk.selective_risk, risk.served_ratio)
    assert found == (1, None, None, None)


def test_dead_letters_are_listed_and_sent_again_as_they_were(world: World) -> None:
    lease = world.lease()
    world.commit(world.slice(lease, world.dead(0), world.dead(1, code="nan", detail="a \x00 and a \ud800")))
    newest, oldest = world.store.dead_letters.list()
    assert (newest.code, newest.offset, newest.detail) == ("nan", 1, "a \ufffd and a ?")
    assert [letter.code for letter in world.store.dead_letters.list(code="not_json")] == ["not_json"]
    assert world.store.dead_letters.counts() == {"nan": 1, "not_json": 1}
    assert world.store.dead_letters.get(oldest.id) == oldest
    assert world.store.dead_letters.replay([oldest.id], by="ana") == 1
    sent = world.store.unpublished([], limit=10)[-1]
    record = world.record(0)
    wanted = (record.partition.topic, record.key, record.value, record.headers)
    assert (sent.topic, sent.key, sent.value, sent.headers) == wanted
    assert world.store.dead_letters.get(oldest.id).replayed_by == "ana"
    assert world.store.dead_letters.counts(replayed=False) == {"nan": 1}
    with pytest.raises(UsageError, match="no dead letter 99"):
        world.store.dead_letters.replay([oldest.id, 99], by="ana")
    assert world.store.evidence.log_faults() == []


APPEND_ONLY = (
    "UPDATE gate_revisions SET alpha = 0.5",
    "DELETE FROM gate_revisions",
    "UPDATE policies SET state = 'open'",
    "DELETE FROM policy_events",
    "UPDATE label_revisions SET severity = 0",
    "DELETE FROM label_revisions",
    "UPDATE decisions SET outcome = 'ship'",
    "UPDATE outcomes SET kind = 'duplicate'",
    "UPDATE gates SET name = 'other'",
    "DELETE FROM gates",
    "DELETE FROM batches",
    "UPDATE batches SET batch_id = 'other'",
    "UPDATE batches SET prompt = 'other'",
    "UPDATE responses SET score = 0.5",
    "UPDATE responses SET text = 'other'",
    "DELETE FROM dead_letters",
    "UPDATE dead_letters SET code = 'other'",
    "UPDATE dead_letters SET value = NULL",
    "DELETE FROM outbox WHERE published_at IS NULL",
    "UPDATE alerts SET message = 'nothing'",
    "DELETE FROM alerts",
    "UPDATE alert_acknowledgements SET reason = 'other'",
    "DELETE FROM alert_acknowledgements",
    "UPDATE encoders SET dimension = 1",
    "DELETE FROM encoders",
    "UPDATE candidate_policies SET reason = 'x'",
    "DELETE FROM candidate_policies",
    "UPDATE candidate_decisions SET why = 'x'",
    "DELETE FROM candidate_decisions",
)

RULES = (
    ("gates", "seed = -1"),
    ("gates", "name = ''"),
    ("gate_revisions", "alpha = 1"),
    ("gate_revisions", "unit = 'all'"),
    ("gate_revisions", "encoder = 'none'"),
    ("gate_revisions", "audit_probability = 1.5"),
    ("gate_revisions", "revision = 0"),
    ("policies", "state = 'cut'"),
    ("policies", "threshold = 0.5"),
    ("policies", "version = 0"),
    ("policies", "state = 'open'"),
    ("policy_events", "event = 'blessed'"),
    ("policy_events", "version = 7"),
    ("batches", "attempt = 0"),
    ("batches", "prompt = NULL"),
    ("batches", "gate = 'nobody'"),
    ("responses", "score = 1.25"),
    ("responses", "score = -0.1"),
    ("responses", "action = 'hide'"),
    ("responses", "position = -1"),
    ("responses", "response_id = ''"),
    ("decisions", "selected = NULL"),
    ("decisions", "selected = 'z'"),
    ("decisions", "outcome = 'abstain'"),
    ("decisions", "outcome = 'mixed'"),
    ("decisions", "reason = 'closed'"),
    ("decisions", "policy_version = 9"),
    ("decisions", "sampling_probability = 0"),
    ("decisions", "sampling_probability = 2"),
    ("decisions", "mode = 'off'"),
    ("outcomes", "kind = 'dead_letter'"),
    ("outcomes", "batch = NULL"),
    ("outcomes", "batch = 77"),
    ("outcomes", "leaf_index = -1"),
    ("outcomes", "partition = 5"),
    ("progress", "epoch = 0"),
    ("progress", "next_offset = -1"),
    ("outbox", "error = 'x'"),
    ("outbox", "topic = ''"),
    ("pending_messages", "source_topic = NULL"),
    ("pending_messages", "error = 'x'"),
    ("pending_messages", "topic = ''"),
    ("pending_messages", "batch = NULL"),
    ("pending_messages", "batch = 77"),
    ("pending_messages", "value = action_value FROM decisions"),
    ("label_revisions", "severity = 1.5"),
    ("label_revisions", "effective_at = '2999-01-01 00:00:00.000000'"),
    ("label_revisions", "attempt = 0"),
    *(
        ("batches", f"{column} = action_key FROM decisions")
        for column in ("content_hash", "salt", "content_mac")
    ),
)


def accepted(world: World, *statements: str) -> bool:
    """Try statements in a transaction that is rolled back in any case."""
    with world.store._database.engine.connect() as connection:
        try:
            for statement in statements:
                connection.exec_driver_sql(statement)
        except exc.IntegrityError:
            return False
        finally:
            connection.rollback()
    return True


def test_what_is_append_only_cannot_be_changed(world: World) -> None:
    """Whoever owns the tables."""
    tried = world.store.candidates.start("support-bot", SETTINGS, by="ana", reason="try").number
    late = world.decision(0, candidate=CandidateDecision(tried, why="too_slow"))
    world.keep(late, world.dead(1))
    world.store.labels.add([world.label(0.5, "b0-0")])
    told = alert("support-bot", "risk", "alarm 1", message="Look.", raised_at=START, details={})
    world.store.alerts.raise_(told)
    world.store.alerts.acknowledge(told.alert_id, by="ana", reason="seen")
    world.store.encoders.register(EncoderIdentity("e", "1", "53aa5117" + "0" * 56, 384))
    assert [statement for statement in APPEND_ONLY if accepted(world, statement)] == []


def test_rules_that_the_database_keeps(world: World) -> None:
    world.keep(world.decision(0, actions=("abstain", "ship")))
    world.store.labels.add([world.label(0.5, "b0-0")])
    broken = []
    for table, change in RULES:
        # Constraints are the second line: the append-only guards, which would answer first, are taken down.
        place = "" if world.store._database.sqlite else f" ON {table}"
        drop = [f"DROP TRIGGER IF EXISTS {kind}_only_{table}_update{place}" for kind in ("append", "erase")]
        assert accepted(
            world, *drop, f"UPDATE {table} SET {change.partition(' = ')[0]} = {change.partition(' = ')[0]}"
        )
        if accepted(world, *drop, f"UPDATE {table} SET {change}"):
            broken.append((table, change))
    assert broken == []
