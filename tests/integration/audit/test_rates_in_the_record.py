"""Raised audit rates in the record: every probability follows from gate and rate, and calibration reads base draws alone."""

from datetime import timedelta
from pathlib import Path

import pytest

from streamer import wiring
from streamer.gates.audit_rate import AuditRate
from streamer.gates.batch_key import BatchKey
from streamer.labels.audit_sample import is_sampled
from streamer.settings.settings import Settings
from streamer.store import Store
from streamer.store.risk.audit_rates import append
from streamer_verify.command import complete_lines
from tests.integration.audit.alone import verify_bundle
from tests.integration.audit.attacker import breaking_in, rebuild_control, rebuild_outcomes
from tests.integration.audit.history import KEYS, event, export, label, scribing, verify

GATE, P, BOOST = "best", 0.25, 3.0
BASE, RAISED, LATER = range(20), range(20, 80), range(80, 90)


def write_rate(store: Store, gate: str = GATE, *, boosted: bool = True) -> None:
    now = wiring.now()
    rate = AuditRate(
        boosted=boosted, since=now, until=now + timedelta(hours=boosted), evidence=0.0, extra=0,
        reason="a test",
    )  # fmt: skip
    store._database.writing(lambda connection: append(connection, gate, rate, now))


@pytest.fixture
def record(migrated_database_url: str, tmp_path: Path) -> Settings:
    """Decisions before, under and after a raised rate, labelled and calibrated; and another gate with a rate of its own."""
    with scribing(tmp_path, migrated_database_url) as (settings, store, scribe):
        scribe.gate(GATE, unit="best", alpha=0.4, audit_probability=P, audit_boost=BOOST, pending="worst")
        scribe.gate("other", unit="best", audit_probability=P)
        scribe.checkpoint()
        scribe.deliver(event(GATE, n) for n in BASE)
        write_rate(store)
        scribe.deliver(event(GATE, n) for n in RAISED)
        scribe.deliver(
            [event(GATE, 20, attempt=2), event(GATE, 200, responses=[{"id": "a", "text": "alone"}])]
        )
        write_rate(store, boosted=False)
        scribe.deliver(event(GATE, n) for n in LATER)
        write_rate(store, "other")
        store.labels.add([label(GATE, n) for n in (*BASE, *RAISED, *LATER)])
        scribe.recalibrate(GATE)
        scribe.checkpoint()
    return settings


def found(settings: Settings, directory: Path) -> tuple[list[str], list[str]]:
    """What both verifiers say."""
    (directory / "bundle.zip").unlink(missing_ok=True)
    export(settings, directory / "bundle.zip")
    outside = complete_lines((directory / "checkpoints.jsonl").read_bytes())
    alone = verify_bundle(directory / "bundle.zip", KEYS, outside)
    return [one.detail for one in verify(settings).faults], [one["detail"] for one in alone.faults]


def test_every_probability_is_proved_and_the_sample_is_that_of_the_base_rate(
    record: Settings, tmp_path: Path
) -> None:
    assert found(record, tmp_path) == ([], [])
    assert verify(record).counts["draws at a raised rate"] == len(RAISED)
    with wiring.open_store(record) as store:
        salt = store.policies.active()[GATE].audit_salt
        drawn = {n: is_sampled(salt, BatchKey(GATE, f"batch-{n}", 1), P) for n in (*BASE, *RAISED, *LATER)}
        extra = [
            n for n in RAISED if not drawn[n] and is_sampled(salt, BatchKey(GATE, f"batch-{n}", 1), P * BOOST)
        ]
        read = store.calibration.inputs(1)
        assert {group.key.batch_id for group in read} == {f"batch-{n}" for n, taken in drawn.items() if taken}
        assert {group.probability for group in read} == {P}
        rate, labels = store.monitoring.rate(GATE)
        assert not rate.boosted
        assert len(extra) > 5  # of 60 by fair coins: fewer once in 10^11 records
        assert labels == 0  # of held answers that a raised rate alone drew nobody is asked
        answers = store.answers.audited(
            GATE, settings=store.gates.get(GATE).settings, older_than=wiring.now() + timedelta(days=1)
        )
        assert {one.batch_id for one in answers} == {group.key.batch_id for group in read}


RAISED_ONE = "(SELECT batch FROM decisions WHERE audit_rate IS NOT NULL AND {} ORDER BY batch LIMIT 1)"
CHANGES = [
    (f"sampling_probability = 0.9 WHERE batch = {RAISED_ONE.format('sampled')}", "its logged probability should be 0.75"),
    (
        "sampling_probability = 0.75 WHERE batch = (SELECT min(batch) FROM decisions WHERE NOT sampled)",
        "its logged probability should be 0.25",
    ),
    (f"audit_rate = NULL, extra_draw = (1 = 0) WHERE batch = {RAISED_ONE.format('sampled')}", "should be 0.25"),
    (f"audit_rate = 99 WHERE batch = {RAISED_ONE.format('sampled')}", "the audit rate 99 that it names is in no log"),
    (f"audit_rate = 2 WHERE batch = {RAISED_ONE.format('sampled')}", "audit rate 2 that it names raises nothing"),
    (f"audit_rate = 3 WHERE batch = {RAISED_ONE.format('sampled')}", "is one of the gate other"),
    (
        f"decided_at = '2036-01-01 00:00:00.000000' WHERE batch = {RAISED_ONE.format('sampled')}",
        "the audit rate 1 that it names had ended",
    ),
    (
        "audit_rate = 1 WHERE batch = (SELECT id FROM batches WHERE attempt = 2)",
        "does not raise the probability of such a batch",
    ),
    (f"extra_draw = (1 = 0) WHERE batch = {RAISED_ONE.format('extra_draw')}", "the gate's own probability does not take"),
    (f"extra_draw = (1 = 1) WHERE batch = {RAISED_ONE.format('sampled AND NOT extra_draw')}", "own probability takes this"),
    (f"extra_draw = (1 = 1) WHERE batch = {RAISED_ONE.format('NOT sampled')}", "it says that a raised audit rate drew it"),
]  # fmt: skip


def test_an_invented_probability_is_found_with_the_chain_computed_anew(
    record: Settings, tmp_path: Path
) -> None:
    said = {}
    for change, detail in CHANGES:
        with breaking_in(record.database.url) as connection:
            batch = connection.exec_driver_sql(
                f"SELECT batch FROM decisions WHERE {change.partition(' WHERE ')[2]}"
            ).scalar_one()
            before = connection.exec_driver_sql(
                "SELECT sampling_probability, audit_rate, extra_draw, decided_at FROM decisions"
                f" WHERE batch = {batch}"
            ).one()
            connection.exec_driver_sql(
                f"UPDATE decisions SET {change.partition(' WHERE ')[0]} WHERE batch = {batch}"
            )
            rebuild_outcomes(connection)
        said[change] = [any(detail in one for one in by) for by in found(record, tmp_path)]
        with breaking_in(record.database.url) as connection:
            p, rate, extra, at = before
            connection.exec_driver_sql(
                f"UPDATE decisions SET sampling_probability = {p}, audit_rate = {'NULL' if rate is None else rate},"
                f" extra_draw = (1 = {int(bool(extra))}), decided_at = '{at}' WHERE batch = {batch}"
            )
            rebuild_outcomes(connection)
    assert said == {change: [True, True] for change, _ in CHANGES}
    assert found(record, tmp_path) == ([], [])


def test_a_rate_or_an_input_put_in_afterwards_is_found(record: Settings, tmp_path: Path) -> None:
    with breaking_in(record.database.url) as connection:
        connection.exec_driver_sql("UPDATE audit_rates SET boosted = (1 = 1) WHERE id = 2")
    for details in found(record, tmp_path):
        assert "it is not what was recorded" in details
    with breaking_in(record.database.url) as connection:
        connection.exec_driver_sql("UPDATE audit_rates SET boosted = (1 = 0) WHERE id = 2")
        connection.exec_driver_sql(
            "UPDATE calibration_inputs SET (batch, response_id, score, severity) = (SELECT r.batch, r.response_id, r.score, 0.0"
            " FROM responses r JOIN decisions d ON d.batch = r.batch WHERE d.extra_draw AND r.drawn ORDER BY 1 LIMIT 1)"
            " WHERE batch = (SELECT min(batch) FROM calibration_inputs)"
        )
        rebuild_control(connection)
    assert any("its gate's own audit did not draw" in one.detail for one in verify(record).faults)
