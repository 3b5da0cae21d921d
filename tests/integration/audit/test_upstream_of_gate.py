"""A gate of one upstream on record: what it decided and learned from, derived again by both verifiers."""

from pathlib import Path
from typing import Any

import pytest

from streamer import wiring
from streamer.settings.settings import Settings
from tests.integration.audit.alone import verify_bundle
from tests.integration.audit.attacker import breaking_in, rebuild_control, rebuild_outcomes
from tests.integration.audit.history import event, export, label_event, scribing, verify

GATE, OWN, OTHER = "pinned", "small@0badcafe", "small@1badcafe"


def of(upstream: str | None, number: int) -> bytes:
    return event(GATE, number, metadata={} if upstream is None else {"upstream": upstream})


def labels(numbers: range) -> list[bytes]:
    return [label_event(GATE, n, response=f"r{i}") for n in numbers for i in range(4)]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Labelled answers of another origin, then of the gate's upstream; calibrated, and decided about both."""
    with scribing(tmp_path) as (settings, store, scribe):
        scribe.gate(GATE, alpha=0.3)
        scribe.deliver(of(OWN if n % 2 else OTHER, n) for n in range(10))
        store.gates.revise(GATE, {"upstream": OWN}, by="ana", reason="test")
        scribe.deliver(of(OWN, n) for n in range(10, 20))
        scribe.deliver(labels(range(20)), topic="labels")
        scribe.recalibrate(GATE)
        scribe.deliver([of(OWN, 21), of(OTHER, 22), of(None, 23)])
        scribe.checkpoint()
    return settings


def rows(settings: Settings, query: str) -> list[Any]:
    with wiring.open_store(settings) as store, store._database.reading() as connection:
        return list(connection.exec_driver_sql(query))


def faults(settings: Settings, folder: Path) -> list[tuple[str, str]]:
    export(settings, folder / "bundle")
    report, alone = verify(settings), verify_bundle(folder / "bundle", [], None)
    found = [(one.check, one.detail) for one in report.faults]
    wanted = [(one["check"], one["detail"]) for one in alone.faults if "upstream" in one["detail"]]
    assert [one for one in found if "upstream" in one[1]] == wanted
    return found


def test_it_learns_from_its_own_upstream_alone_and_holds_the_others(
    settings: Settings, tmp_path: Path
) -> None:
    ((groups,),) = rows(settings, "SELECT groups FROM calibration_runs")
    assert groups == 10
    assert rows(
        settings,
        "SELECT b.batch_id, d.reason FROM decisions d JOIN batches b ON b.id = d.batch WHERE policy_version >= 3",
    ) == [("batch-21", "scored"), ("batch-22", "upstream_mismatch"), ("batch-23", "upstream_mismatch")]
    assert faults(settings, tmp_path) == []


def test_where_no_metadata_are_kept_nothing_is_said_of_them(tmp_path: Path) -> None:
    with scribing(tmp_path) as (settings, _, scribe):
        scribe.gate(GATE, alpha=0.3, upstream=OWN, keep_texts=False)
        scribe.deliver([of(OWN, 1), of(OTHER, 2)])
    found = rows(settings, "SELECT reason FROM decisions ORDER BY batch")
    assert found == [("no_threshold",), ("upstream_mismatch",)]
    assert faults(settings, tmp_path) == []


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "UPDATE decisions SET reason = 'upstream_mismatch' WHERE policy_version = 2 AND batch = 12",
            "it was held for its upstream, which is its gate's",
        ),
        (
            f"UPDATE batches SET metadata = '{{\"upstream\": \"{OTHER}\"}}' WHERE batch_id = 'batch-21'",
            "it was scored, and its answers are not of its gate's upstream",
        ),
    ],
)
def test_what_is_not_of_its_upstream_is_named(
    settings: Settings, tmp_path: Path, statement: str, said: str
) -> None:
    with breaking_in(settings.database.url) as connection:
        assert connection.exec_driver_sql(statement).rowcount == 1
        rebuild_outcomes(connection)
        rebuild_control(connection)
    assert ("action", said) in faults(settings, tmp_path)
