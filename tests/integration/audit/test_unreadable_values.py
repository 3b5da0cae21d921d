"""Values that SQLite stores and nobody can read: a finding for `audit verify`, one clear line for the others."""

import contextlib
import json
from pathlib import Path

import pytest

from streamer.cli import FAILED, FOUND, main
from tests.integration.audit.attacker import breaking_in, rebuild_control
from tests.integration.audit.conftest import Record
from tests.told import Told

pytestmark = pytest.mark.parametrize("template", ["sqlite"], indirect=True)

NO_TEXT = "CAST(x'736563726574ff' AS TEXT)"  # "secret" and a byte that ends no UTF-8
LAST = "WHERE rowid = (SELECT max(rowid) FROM {table})"

EVERYTHING = [
    # table, column, value, what export says
    ("gates", "created_at", NO_TEXT, "a value of the column created_at is no text"),
    ("gates", "audit_salt", "'?'", "control.jsonl"),
    ("gate_revisions", "alpha", NO_TEXT, "a value of the column alpha is no text"),
    ("label_revisions", "received_at", "'yesterday'", "control.jsonl"),
    ("label_revisions", "labeller", NO_TEXT, "a value of the column labeller is no text"),
    ("outcomes", "recorded_at", NO_TEXT, "a value of the column recorded_at is no text"),
    ("outcomes", "batch", "'?'", "outcomes.jsonl"),
    ("batches", "prompt", NO_TEXT, "a value of the column prompt is no text"),
    ("signed_head", "note", "'?'", "checkpoints.jsonl"),
    ("heads", "data", "'?'", "heads.jsonl"),
    ("control_head", "log_size", NO_TEXT, "the heads of the logs"),
    ("progress", "next_offset", "x'ff'", "the heads of the logs"),
    ("control_log", "sealed", f"'{'[' * 100_000}'", "control.jsonl"),
    ("batches", "metadata", f"'{'[' * 100_000}'", "outcomes.jsonl"),
]


@pytest.fixture
def here(record: Record, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a copy of the history, configured."""
    monkeypatch.chdir(record.directory)
    monkeypatch.setenv("STREAMER_DATABASE_URL", record.url)
    monkeypatch.setenv("STREAMER_AUDIT_CHECKPOINT_FILE", "checkpoints.jsonl")
    return record.directory


def damage(record: Record, table: str, column: str, value: str) -> None:
    with breaking_in(record.url) as connection:
        where = LAST.format(table=table)
        assert connection.exec_driver_sql(f"UPDATE {table} SET {column} = {value} {where}").rowcount == 1


@pytest.mark.parametrize(("table", "column", "value", "said"), EVERYTHING)
def test_verify_finds_it_and_export_writes_nothing(
    here: Path,
    record: Record,
    capsys: pytest.CaptureFixture[str],
    table: str,
    column: str,
    value: str,
    said: str,
):
    damage(record, table, column, value)
    assert main(["audit", "verify", "--json"]) == FOUND
    found = capsys.readouterr()
    assert json.loads(found.out)["faults"]
    assert main(["audit", "export", "--out", "bundle"]) == FAILED
    told = capsys.readouterr()
    assert said in told.err
    assert told.err.startswith("streamer: nothing is exported, because ")
    assert "`streamer audit verify` says which row it is" in told.err
    assert told.err.count("\n") == 1
    assert not list(here.glob("bundle*"))
    # What cannot be read may be somebody's text: no part of it is shown.
    assert "secret" not in found.out + found.err + told.err


@pytest.mark.parametrize(
    ("column", "value"), [("alpha", "'?'"), ("unit", "'?'"), ("created_at", "'?'"), ("method", "'?'")]
)
def test_settings_that_are_none_are_a_finding(
    here: Path, record: Record, told: Told, column: str, value: str
):
    damage(record, "gate_revisions", column, value)
    assert "unexpected" not in told("audit", "verify", status=FOUND).err


@pytest.mark.parametrize("value", ["1.5", "-0.25", "'high'", "x'ff'", "9e999"])
@pytest.mark.parametrize("table", ["label_revisions", "calibration_inputs"])
def test_a_severity_that_is_none_is_named(
    here: Path, record: Record, capsys: pytest.CaptureFixture[str], table: str, value: str
):
    with breaking_in(record.url) as connection:
        where = LAST.format(table=table) if table == "label_revisions" else "WHERE run = 3"
        assert connection.exec_driver_sql(f"UPDATE {table} SET severity = {value} {where}").rowcount
        with contextlib.suppress(TypeError, ValueError):  # what no JSON can hold is sealed by nobody
            rebuild_control(connection)
    (here / "none.jsonl").touch()  # the newest checkpoint would be named first
    assert main(["audit", "verify", "--json", "--checkpoints", "none.jsonl"]) == FOUND
    told = capsys.readouterr()
    assert "Traceback" not in told.err
    faults = json.loads(told.out)["faults"]
    if value in ("1.5", "-0.25"):
        what = {"label_revisions": "row.severity is", "calibration_inputs": "inputs["}[table]
        kind = {"label_revisions": "label_revisions", "calibration_inputs": "calibration_runs"}[table]
        assert any(
            kind in one["place"]
            and one["detail"].startswith(what)
            and one["detail"].endswith("is not between 0 and 1")
            for one in faults
        ), faults
    else:
        assert faults


def test_a_decision_that_cannot_be_told_is_told_of(here: Path, record: Record, told: Told):
    with breaking_in(record.url) as connection:
        connection.exec_driver_sql(
            "UPDATE batches SET prompt = CAST(x'ff' AS TEXT) WHERE gate = 'best' AND batch_id = 'batch-25'"
        )
    found = told("audit", "show", "batch-25", "--gate", "best", status=FAILED).err
    assert "the record of batch 'batch-25' cannot be read" in found


def test_a_damaged_file_is_told_of(here: Path, record: Record, capsys: pytest.CaptureFixture[str]):
    file = here / "record.db"
    content = bytearray(file.read_bytes())
    # Every page but the first dozen, which hold the schema: the tables' own trees.
    content[4096 * 40 :] = b"\xff" * (len(content) - 4096 * 40)
    file.write_bytes(content)
    status = main(["audit", "verify"])
    told = capsys.readouterr()
    assert status in (FAILED, FOUND)
    assert "the SQLite file is damaged; restore a backup" in told.out + told.err
    assert "unexpected" not in told.err
