"""No false report: every rule of a gate, every unit, erased texts, held batches, interrupted files, an old database."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from streamer import wiring
from streamer.audit.checkpointing import said
from streamer.calibration.registry import offered
from streamer.scoring.signals.signal_list import SignalList
from streamer.settings.settings import Settings
from streamer.store import prune
from streamer.store.audit.forgetting import SIX_MONTHS
from streamer_verify.command import complete_lines
from streamer_verify.logs import read_note
from streamer_verify.values import canonical_json
from tests.integration.audit.alone import verify_bundle
from tests.integration.audit.attacker import breaking_in, rebuild_outcomes
from tests.integration.audit.conftest import Record
from tests.integration.audit.history import KEYS, Scribe, event, export, settings_for, verify
from tests.integration.audit.kept_log import KeepingScribe, KeptLog, Site
from tests.integration.judge.test_judge_scores import SCORED_BY, Model, judge_at, scores_at
from tests.migrated import migrated

RULES: dict[str, dict[str, Any]] = {
    "smooth": {"unit": "best", "shape": "smooth", "width": 0.1},
    "smooth-batch": {"unit": "batch", "shape": "smooth", "width": 0.1},
    "ramp": {"unit": "response", "shape": "ramp", "width": 0.2},
    "quantile": {"unit": "best", "shape": "quantile"},
    "rank": {"unit": "response", "shape": "rank"},
    "transductive": {"unit": "response", "method": "transductive", "audit_draws": 4, "alpha": 0.2},
    "segments": {"unit": "best", "segment_by": "kind", "alpha": 0.4, "segment_fallback": "pooled"},
    "no-texts": {
        "unit": "best",
        "segment_by": "kind",
        "alpha": 0.4,
        "segment_fallback": "pooled",
        "keep_texts": False,
    },
    "batch": {"unit": "batch", "method": "rbwa", "audit_draws": 3},
    "hb": {"unit": "best", "method": "hb", "alpha": 0.5},
    "betting": {"unit": "best", "method": "betting", "alpha": 0.5},
    "bernstein": {"unit": "response", "method": "bernstein", "alpha": 0.8, "delta": 0.4},
    "transductive-best": {"unit": "best", "method": "transductive", "label_floor": 0.1},
    "transductive-batch": {"unit": "batch", "method": "transductive"},
    "age": {"unit": "response", "method": "age"},
    "bb": {"unit": "response", "method": "bb"},
    "crc": {"unit": "response", "method": "crc"},
    "selective": {"unit": "best", "method": "selective", "alpha": 0.7},
    "selective-mean": {"unit": "response", "method": "selective-mean", "label_floor": 0.1, "alpha": 0.5},
    "judge": {
        "unit": "best",
        "alpha": 0.6,
        "scorer": "judge",
        "encoder": SCORED_BY,
        "embeddings": "refuse",
        "dimension": None,
    },
    "full": {"unit": "best", "method": "full", "scorer": "choice", "signals": SignalList().text},
    "attempts": {"unit": "best", "max_attempts": 2, "label_floor": 0.1, "alpha": 0.8},
    "floor": {"unit": "response", "label_floor": 0.6, "audit_draws": 3, "alpha": 0.8},
}


def both(settings: Settings, directory: Path) -> tuple[Any, Any]:
    """The faults and notes that both verifiers find."""
    report = verify(settings)
    export(settings, directory / "bundle.zip")
    outside = complete_lines((directory / "checkpoints.jsonl").read_bytes())
    alone = verify_bundle(directory / "bundle.zip", KEYS, outside)
    assert report.faults == ()
    assert alone.faults == []
    return report, alone


@pytest.fixture(scope="module")
def every_rule(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """One gate for each rule, calibrated, with batches decided before and after; and its topics and receipts."""
    directory = tmp_path_factory.mktemp("rules")
    settings = settings_for(f"sqlite:///{directory / 'record.db'}", directory)
    migrated(settings)
    with Model() as model, judge_at(model) as judge, wiring.open_store(settings) as store:
        scribe = KeepingScribe(store, settings)
        scribe.judge = scores_at(model, judge, per_minute=10_000)
        for name, chosen in RULES.items():
            scribe.gate(name, **{"alpha": 0.3} | chosen)
        scribe.checkpoint()
        for name in RULES:
            scribe.send(*(event(name, n) for n in range(16)))
            labels = scribe.drawn_labels(name, range(16), lambda n, i: float((n + i) % 4 == 0))
            scribe.send(*labels, topic="labels")
            scribe.recalibrate(name)
            scribe.send(*(event(name, n) for n in range(16, 28)))
        scribe.send(*(event("attempts", n, attempt=2) for n in range(16, 20)))
        scribe.checkpoint()
        receipts = scribe.publish()
    return Site(directory, settings, KeptLog(scribe.kept), receipts)


def test_every_calibrator_that_a_gate_may_have_is_among_them() -> None:
    assert {chosen.get("method", "mean") for chosen in RULES.values()} == set(offered())


def test_every_rule_is_derived_again(every_rule: Site) -> None:
    report, alone = both(every_rule.settings, every_rule.directory)
    assert report.notes == ()
    assert alone.notes == {}
    assert (
        report.counts["actions derived again"] == alone.counts["actions derived again"] == len(RULES) * 28 + 4
    )
    assert report.counts["calibrations derived again"] == len(RULES)
    with wiring.open_store(every_rule.settings) as store:
        for name in RULES:
            decided, shipped = store.reports.decided_and_shipped(name)
            assert decided >= 28
            assert shipped, f"{name} ships nothing: it shows nothing"


def test_witnesses_of_every_rule_have_nothing_to_say_also_once_it_is_erased(
    every_rule: Site, tmp_path: Path
) -> None:
    assert every_rule.faults() == ([], [], [])
    pruned = every_rule.copy(tmp_path)
    erased = prune(
        pruned.settings.database.url, older_than=SIX_MONTHS, now=wiring.now() + timedelta(days=200),
        by="ana", reason="a test",
    )  # fmt: skip
    assert erased.batches == len(RULES) * 28 + 4
    assert erased.judgements
    assert pruned.faults() == ([], [], [])


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        *(
            (
                name,
                "cut_threshold = cut_threshold + 1e-9",
                "the batch's own threshold does not follow from its policy",
            )
            for name in ("transductive", "transductive-best", "segments")
        ),
        ("segments", "segment = 'neither'", "its segment is not that of its metadata"),
    ],
)
def test_a_batchs_own_cut_is_derived_again(
    every_rule: Site, tmp_path: Path, name: str, change: str, said: str
) -> None:
    """A cut that was moved where no score lies changes no action, and is named all the same."""
    own = every_rule.copy(tmp_path).settings
    with breaking_in(own.database.url) as connection:
        changed = connection.execute(
            sa.text(
                f"UPDATE decisions SET {change} WHERE batch ="
                " (SELECT max(batch) FROM decisions WHERE gate = :gate AND cut_threshold IS NOT NULL)"
            ),
            {"gate": name},
        )
        assert changed.rowcount == 1
        rebuild_outcomes(connection)
    export(own, tmp_path / "bundle")
    alone = verify_bundle(tmp_path / "bundle", KEYS, [])
    for details in (
        [fault.detail for fault in verify(own, from_database=True).faults],
        [fault["detail"] for fault in alone.faults],
    ):
        assert said in details


def test_chances_that_were_drawn_again_are_named(every_rule: Site, tmp_path: Path) -> None:
    own = every_rule.copy(tmp_path).settings
    with breaking_in(own.database.url) as connection:
        batch = connection.execute(
            sa.text("SELECT batch FROM decisions WHERE gate = 'ramp' ORDER BY batch LIMIT 1")
        ).scalar_one()
        connection.execute(
            sa.text("UPDATE responses SET uniform = 0.5 WHERE batch = :batch AND position = 0"),
            {"batch": batch},
        )
        rebuild_outcomes(connection)
    faults = verify(own, from_database=True).faults
    assert any("random numbers" in fault.detail for fault in faults)


def test_erased_texts_are_no_fault(record: Record) -> None:
    later = wiring.now() + timedelta(days=200)
    assert prune(record.url, older_than=SIX_MONTHS, now=later, by="ana", reason="a test").batches == 76
    report, alone = both(record.settings, record.directory)
    assert report.counts["texts not given or erased"] == alone.counts["texts not given or erased"] == 76


@pytest.mark.parametrize("tail", [b'{"half": "a lin', b""])
def test_a_line_that_a_crash_interrupted_is_no_fault_and_is_mended(record: Record, tail: bytes) -> None:
    whole = record.file.read_bytes()
    record.file.write_bytes(whole + tail)
    assert record.verify().faults == ()
    with wiring.open_store(record.settings) as store:
        scribe = Scribe(store, record.settings)
        scribe.checkpoint()
        newest = said(record.file.read_bytes().splitlines()[-1])
        assert newest == read_note(store.heads.newest().note.decode())
    lines = [line for line in record.file.read_bytes().splitlines() if line]
    assert len(lines) == 4
    assert record.verify().faults == ()


def test_a_crash_between_database_and_file_is_no_fault(record: Record) -> None:
    lines = record.file.read_bytes().splitlines()
    record.file.write_bytes(lines[0] + b"\n")
    assert record.verify().faults == ()
    with wiring.open_store(record.settings) as store:
        wiring.checkpointer(record.settings, store).keep_up(store.heads.newest())
    assert [said(line) for line in record.file.read_bytes().splitlines()] == [said(lines[0]), said(lines[2])]


LEFT_OUT: dict[str, tuple[dict[str, Any], Callable[[Any], bool]]] = {
    "texts": ({"texts": False}, lambda alone: alone.counts["texts"] == 0 and alone.counts["draws"] == 76),
    "salts": ({"salts": False}, lambda alone: alone.counts["draws"] == 0 and "salt of best" in alone.notes),
    "other gates": (
        {"gate": "best"},
        lambda alone: 0 < alone.counts["draws"] == alone.counts["texts"] < alone.counts["decisions"],
    ),
}


@pytest.mark.parametrize("what", LEFT_OUT)
def test_what_is_left_out_of_a_bundle_is_not_missed(record: Record, what: str) -> None:
    options, as_expected = LEFT_OUT[what]
    target = record.directory / "bundle"
    export(record.settings, target, **options)
    outside = complete_lines(record.file.read_bytes())
    alone = verify_bundle(target, KEYS, outside)
    assert alone.faults == []
    assert as_expected(alone), (alone.counts, alone.notes)
    text = (target / "outcomes.jsonl").read_text("utf-8")
    if what == "texts":
        assert "question" not in text
    elif what == "other gates":
        assert '"batch":["each"' in text
        assert "answer 1 of 61" not in text


def test_what_is_left_out_of_a_bundle_unsaid_is_named(record: Record) -> None:
    target = record.directory / "bundle"
    export(record.settings, target)
    file = target / "outcomes.jsonl"
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    for kind in ("decision", "dead_letter", "conflict"):
        last = max(at for at, line in enumerate(lines) if line["kind"] == kind)
        changed = [
            {name: value for name, value in line.items() if at != last or name != "content"}
            for at, line in enumerate(lines)
        ]
        file.write_bytes(b"".join(canonical_json(line) + b"\n" for line in changed))
        said = [one["detail"] for one in verify_bundle(target, KEYS, None).faults]
        assert "its texts are not there, and neither erased nor said to be left out" in said, kind


def test_the_database_waits_while_texts_are_scored_again(record: Record) -> None:
    if record.url.startswith("sqlite"):
        pytest.skip("SQLite ends no transaction because it is idle")
    with wiring.open_store(record.settings) as store, store.evidence.snapshot() as snapshot:
        shown = snapshot._connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar_one()
    assert shown == "0"


def test_a_bundle_is_older_than_later_checkpoints(record: Record) -> None:
    target = record.directory / "bundle"
    export(record.settings, target)
    with wiring.open_store(record.settings) as store:
        Scribe(store, record.settings).checkpoint()
    alone = verify_bundle(target, KEYS, complete_lines(record.file.read_bytes()))
    assert alone.faults == []
    assert "younger" in alone.notes
