"""A closing that the control log has later than the decisions under it is no fault; another policy is."""

from pathlib import Path

import pytest

from streamer.gates.policy import WARNING
from tests.integration.audit.alone import verify_bundle
from tests.integration.audit.attacker import breaking_in, rebuild_control, rebuild_outcomes
from tests.integration.audit.history import KEYS, event, export, scribing, verify

pytestmark = pytest.mark.postgres


def test_decisions_under_a_closing_that_is_sealed_after_them(
    migrated_postgres_url: str, tmp_path: Path
) -> None:
    with scribing(tmp_path, migrated_postgres_url) as (settings, store, scribe):
        scribe.gate("best", unit="best", alpha=0.3, pending="worst")
        scribe.checkpoint()
        scribe.deliver(event("best", number) for number in range(20))
        scribe.import_labels("best", range(20))
        scribe.recalibrate("best")
        with store._database.engine.begin() as other:
            other.exec_driver_sql("SELECT * FROM control_head FOR UPDATE")
            closed = store.policies.close("best", by="ana", reason="an incident")
            scribe.deliver(event("best", number) for number in range(20, 25))
        scribe.checkpoint()
    report = verify(settings)
    assert report.faults == ()
    assert report.counts["decisions under a closing that was sealed after them"] == 5
    export(settings, tmp_path / "bundle")
    assert verify_bundle(tmp_path / "bundle", KEYS, None).faults == []

    # One that ships, found by a run, is not to be sealed after what it decided.
    with breaking_in(settings.database.url) as connection:
        connection.exec_driver_sql(
            "UPDATE policies SET (state, threshold, rule, calibration_run, guarantee) = (SELECT state, threshold, rule,"
            f" calibration_run, guarantee FROM policies WHERE version = {closed.version - 1})"
            f" WHERE version = {closed.version}"
        )
        rebuild_control(connection)
    export(settings, tmp_path / "changed")
    faults = verify_bundle(tmp_path / "changed", KEYS, None).faults
    assert any("was written after it" in fault["detail"] for fault in faults)


def test_an_early_hold_is_a_reason_of_its_own_that_both_verifiers_derive(
    migrated_postgres_url: str, tmp_path: Path
) -> None:
    with scribing(tmp_path, migrated_postgres_url) as (settings, store, scribe):
        scribe.gate("best", unit="best", alpha=0.3, pending="worst")
        scribe.deliver(event("best", number) for number in range(20))
        scribe.import_labels("best", range(20))
        scribe.recalibrate("best")
        served = store.policies.newest("best")
        store.policies.close("best", by=WARNING, reason="early warning 1")
        scribe.deliver(event("best", number) for number in range(20, 25))
        store.policies.rollback("best", served.version, by=WARNING, reason="labels clear it")
        scribe.deliver(event("best", number) for number in range(25, 30))
        scribe.checkpoint()
    assert verify(settings).faults == ()
    export(settings, tmp_path / "bundle")
    assert verify_bundle(tmp_path / "bundle", KEYS, None).faults == []
    with breaking_in(settings.database.url) as connection:
        changed = connection.exec_driver_sql(
            "UPDATE decisions SET reason = 'closed' WHERE reason = 'early_warning'"
        )
        assert changed.rowcount == 5
        rebuild_outcomes(connection)
    export(settings, tmp_path / "changed")
    faults = verify_bundle(tmp_path / "changed", KEYS, None).faults
    assert any("should be 'early_warning'" in fault["detail"] for fault in faults)
