"""What order proves between the chains, and what is only told."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streamer import wiring
from streamer.events.topics import HTTP, HTTP_LOG
from streamer.gates.policy import ActivePolicy
from streamer.journal import Partition, Record, Slice
from streamer.settings.settings import Settings
from streamer.store import prune
from streamer.store.calibration.calibration_runs import Calibrations
from tests.integration.audit.attacker import breaking_in, rebuild_control, rebuild_outcomes
from tests.integration.audit.history import LOG, Scribe, event, label_event, settings_for, verify
from tests.made import a_decider
from tests.migrated import migrated


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database; leave it as it is."""
    directory = tmp_path_factory.mktemp("empty")
    migrated(settings_for(f"sqlite:///{directory / 'record.db'}", directory))
    return directory / "record.db"


@pytest.fixture
def settings(empty: Path, tmp_path: Path) -> Settings:
    shutil.copy(empty, tmp_path)
    return settings_for(f"sqlite:///{tmp_path / 'record.db'}", tmp_path)


@pytest.fixture
def scribe(settings: Settings) -> Iterator[Scribe]:
    with wiring.open_store(settings) as store:
        scribe = Scribe(store, settings)
        scribe.gate("best", unit="best", alpha=0.4)
        yield scribe


def decide(
    scribe: Scribe,
    place: Partition,
    offsets: Sequence[int],
    numbers: Sequence[int],
    active: ActivePolicy | None = None,
) -> None:
    """Let a worker that holds a policy decide batches at these offsets."""
    lease = scribe.store.lease([place])[place]
    records = [
        Record(place, offset, b"k", event("best", number), (), 1)
        for offset, number in zip(offsets, numbers, strict=True)
    ]
    held = active or scribe.store.policies.active()["best"]

    class Book:
        def get(self, _gate: str) -> ActivePolicy:
            return held

    decider = a_decider(Book(), scribe.store.known, clock=wiring.now)
    outcomes = tuple(decider.outcomes(records))
    scribe.store.commit([Slice(lease, lease.next_offset, offsets[-1] + 1, outcomes)], now=wiring.now())


def test_a_policy_that_a_worker_refused_is_told_and_no_fault(scribe: Scribe):
    scribe.checkpoint()
    older = scribe.store.policies.active()["best"]
    scribe.store.policies.close("best", by="ana", reason="a test")
    place = Partition(LOG, "streamer.responses", 0)
    decide(scribe, place, [0], [1], replace(older, newest_seen=2))
    report = verify(scribe.settings)
    assert report.faults == ()
    assert report.counts["decisions whose worker refused the newest policy"] == 1
    assert any("refused the newest one" in note for note in report.notes)
    with breaking_in(scribe.settings.database.url) as connection:
        connection.exec_driver_sql("UPDATE decisions SET newest_seen = NULL")
        rebuild_outcomes(connection)
    (fault,) = verify(scribe.settings).faults
    assert fault.detail == "it was decided under policy 1, when policy 2 was in force"


def test_what_leaves_say_of_the_control_log_never_falls(scribe: Scribe):
    place = Partition(LOG, "streamer.responses", 0)
    decide(scribe, place, [0, 1], [1, 2])
    scribe.import_labels("best", [1])
    scribe.checkpoint()
    scribe.store.policies.close("best", by="ana", reason="a test")
    decide(scribe, place, [2, 3], [3, 4])
    assert verify(scribe.settings).faults == ()
    with breaking_in(scribe.settings.database.url) as connection:
        connection.exec_driver_sql(
            'UPDATE outcomes SET control_size = (SELECT control_size - 1 FROM outcomes WHERE "offset" = 1)'
            ' WHERE "offset" = 3'
        )
        rebuild_outcomes(connection)
    faults = verify(scribe.settings).faults
    assert any("a leaf before it saw" in fault.detail for fault in faults)
    with breaking_in(scribe.settings.database.url) as connection:
        connection.exec_driver_sql('UPDATE outcomes SET control_size = 10000 WHERE "offset" = 3')
    (fault, *_) = verify(scribe.settings).faults
    assert "control leaf 9999, which was the newest then, is missing" in fault.detail


def test_a_leaf_saw_no_more_of_the_control_log_than_the_checkpoint_that_covers_it(scribe: Scribe):
    place = Partition(LOG, "streamer.responses", 0)
    decide(scribe, place, [0, 1], [1, 2])
    scribe.checkpoint()
    scribe.import_labels("best", [1])
    with breaking_in(scribe.settings.database.url) as connection:
        connection.exec_driver_sql(
            'UPDATE outcomes SET control_size = (SELECT log_size FROM control_head) WHERE "offset" = 1'
        )
        rebuild_outcomes(connection)
    faults = verify(scribe.settings, from_database=True).faults
    assert any("covers it and saw" in fault.detail for fault in faults)


def test_holes_are_told_where_publishers_leave_them_and_named_where_none_can_be(scribe: Scribe):
    decide(scribe, Partition(LOG, "streamer.responses", 0), [0, 3, 4], [1, 2, 3])
    decide(scribe, Partition(HTTP_LOG, HTTP, 1), [0, 1, 2], [4, 5, 6])
    scribe.checkpoint()
    report = verify(scribe.settings)
    assert report.faults == ()
    assert any(
        "2 offsets of streamer.responses[0] have no outcome, the first is 1" in note for note in report.notes
    )
    with breaking_in(scribe.settings.database.url) as connection:
        connection.exec_driver_sql(f"DELETE FROM outcomes WHERE log_id = '{HTTP_LOG}' AND \"offset\" = 1")
        connection.exec_driver_sql(
            "DELETE FROM decisions WHERE batch = (SELECT id FROM batches WHERE batch_id = 'batch-5')"
        )
        rebuild_outcomes(connection)
    faults = verify(scribe.settings, from_database=True).faults
    assert any("1 requests before it have no outcome" in fault.detail for fault in faults)


def test_a_clock_that_steps_back_is_told(scribe: Scribe):
    decide(scribe, Partition(LOG, "streamer.responses", 0), [0, 1], [1, 2])
    with breaking_in(scribe.settings.database.url) as connection:
        connection.exec_driver_sql(
            "UPDATE outcomes SET recorded_at = datetime(recorded_at, '-1 hour') || '.000000' WHERE \"offset\" = 1"
        )
        rebuild_outcomes(connection)
    scribe.checkpoint()
    report = verify(scribe.settings)
    assert report.faults == ()
    assert any("steps back 1 times, by up to 360" in note for note in report.notes)


def test_a_run_that_did_not_read_what_was_there_is_named(scribe: Scribe, monkeypatch: pytest.MonkeyPatch):
    scribe.gate("windowed", unit="best", alpha=0.4, window=6, pending="worst")
    for gate in ("best", "windowed"):
        scribe.deliver(event(gate, n) for n in range(10))
        scribe.deliver(
            (label_event(gate, n, response=f"r{i}") for n in range(10) for i in range(4)), topic="labels"
        )
    for gate in ("best", "windowed"):
        scribe.recalibrate(gate)
    scribe.checkpoint()
    report = verify(scribe.settings)
    assert report.faults == ()
    assert report.counts["runs whose sample is complete"] == 2
    read: Callable[..., Any] = Calibrations.audit_sample
    monkeypatch.setattr(Calibrations, "audit_sample", lambda self, *a, **k: [*read(self, *a, **k)[:-2]])
    scribe.recalibrate("windowed")
    scribe.checkpoint()
    faults = verify(scribe.settings).faults
    assert [fault.detail.partition(",")[0] for fault in faults] == [
        f"it did not read the drawn batch windowed/batch-{n}#1" for n in (8, 9)
    ]


def test_a_rule_that_permits_too_much_is_named(scribe: Scribe, settings: Settings):
    scribe.deliver(event("best", n) for n in range(2))
    scribe.checkpoint()
    prune(settings.database.url, older_than=timedelta(0), now=wiring.now(), sooner_than_six_months=True)
    assert verify(settings).faults == ()
    with breaking_in(settings.database.url) as connection:
        connection.exec_driver_sql("UPDATE erasures SET sooner = 0")
        rebuild_control(connection)
    faults = verify(settings, from_database=True).faults
    assert any("younger than six months, and does not say so" in fault.detail for fault in faults)
