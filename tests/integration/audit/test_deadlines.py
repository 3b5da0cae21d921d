"""Decision deadlines in the record: held and shipped as they should be, and derived again by whoever verifies."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer import wiring
from streamer.gates.settings import GateSettings
from streamer.settings.settings import Settings
from streamer.store.log.leaves import instant
from streamer_verify.actions import is_late
from tests.integration.audit.attacker import breaking_in, rebuild_outcomes
from tests.integration.audit.history import Scribe, event, settings_for, verify
from tests.migrated import migrated

DEADLINE = 3600.0


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Settings]:
    """A record of a gate with a deadline: records of 2023 and of now, with and without a date of their own."""
    settings = settings_for(f"sqlite:///{tmp_path}/record.db", tmp_path)
    migrated(settings)
    now = wiring.now()
    with wiring.open_store(settings) as store:
        scribe = Scribe(store, settings)
        scribe.gate("hasty", decision_deadline_seconds=DEADLINE, unit="response")
        scribe.deliver([event("hasty", 0), event("hasty", 1, created_at=now.isoformat())])
        with store._database.reading() as connection:
            found = connection.exec_driver_sql(
                "SELECT reason, timestamp_ms FROM decisions ORDER BY batch"
            ).all()
    assert found == [("deadline_passed", 1_700_000_000_000), ("no_threshold", 1_700_000_000_001)]
    return settings


def changed(settings: Settings, statement: str, *values: Any) -> list[str]:
    """Change the decision of the first batch, chain it anew as an attacker would, and verify."""
    with breaking_in(settings.database.url) as connection:
        connection.exec_driver_sql(statement, values)
        rebuild_outcomes(connection)
    return [one.detail for one in verify(settings).faults]


def test_a_hold_for_a_deadline_follows_from_the_timestamp_that_is_recorded(here: Settings) -> None:
    assert verify(here).faults == ()
    young = int(wiring.now().timestamp() * 1000)
    found = changed(here, "UPDATE decisions SET timestamp_ms = ? WHERE batch = 1", young)
    assert found == ["it was held for a deadline that had not passed"]


def test_a_ship_past_its_deadline_is_found(here: Settings) -> None:
    with wiring.open_store(here) as store:
        store.policies.close("hasty", by="ana", reason="for its version")
    shipped = "UPDATE decisions SET outcome = 'ship', reason = 'scored' WHERE batch = 1"
    undated = "UPDATE decisions SET timestamp_ms = NULL WHERE batch = 1"  # what has no date is late
    for statement in (shipped, undated):
        assert "it shipped after its gate's decision deadline" in changed(here, statement)


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Settings]:
    """A record of two requests, to a gate without a deadline: one came too late, and one in time."""
    settings = settings_for(f"sqlite:///{tmp_path}/record.db", tmp_path)
    migrated(settings)
    now = int(wiring.now().timestamp() * 1000)
    with wiring.open_store(settings) as store:
        scribe = Scribe(store, settings)
        scribe.gate("easy", unit="response")
        scribe.deliver([event("easy", 0)], deadline_ms=now)
        scribe.deliver([event("easy", 1)], deadline_ms=now + 3_600_000)
        with store._database.reading() as connection:
            found = connection.exec_driver_sql(
                "SELECT reason, deadline_ms FROM decisions ORDER BY batch"
            ).all()
    assert found == [("deadline_passed", now), ("no_threshold", now + 3_600_000)]
    return settings


def test_a_hold_follows_from_the_moment_at_which_its_sender_stopped_to_wait(asked: Settings) -> None:
    assert verify(asked).faults == ()
    later = int(wiring.now().timestamp() * 1000) + 3_600_000
    found = changed(asked, "UPDATE decisions SET deadline_ms = ? WHERE batch = 1", later)
    assert found == ["it was held for a deadline that had not passed"]


def test_a_ship_past_the_moment_at_which_its_sender_stopped_to_wait_is_found(asked: Settings) -> None:
    found = changed(asked, "UPDATE decisions SET outcome = 'ship', deadline_ms = 1 WHERE batch = 2")
    assert "it shipped after its sender's deadline" in found


MOMENT = datetime(2026, 11, 20, 12, tzinfo=UTC)
OFFSETS = st.sampled_from([-(10**9), -61, -60.000001, -60, -59.5, 0, 59, 60, 60.000001, 61, 10**9])


@given(
    st.none() | OFFSETS,
    OFFSETS.map(lambda off: int((MOMENT.timestamp() + off) * 1000)) | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.just(60.0) | st.floats(1e-3, 1e300),
)
def test_the_one_file_and_the_decider_agree(
    created: float | None, timestamp_ms: int, deadline: float | None
) -> None:
    at = None if created is None else MOMENT + timedelta(seconds=created)
    settings = GateSettings(encoder="e@12345678", decision_deadline_seconds=deadline)
    told = json.loads(json.dumps([instant(at), instant(MOMENT)]))
    assert is_late(deadline, told[0], timestamp_ms, told[1]) == settings.is_late(at, timestamp_ms, MOMENT)
