"""`streamer export decisions` and `labels`: the record as tables, by the command that people run."""

import csv
import io
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from pyarrow import parquet

from streamer.cli import main
from tests.conftest import ROOT
from tests.integration.store.conftest import World
from tests.integration.store.labelled_gate import GATE, LabelledGate, bad_below


@pytest.fixture
def recorded(new_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> LabelledGate:
    """A gate with 30 decisions, whose draws are labelled; on either database."""
    one = LabelledGate(new_world())
    one.label(one.decide(30), bad_below(0.3))
    monkeypatch.setenv("STREAMER_DATABASE_URL", one.world.url)
    return one


@pytest.mark.parametrize("what", ["decisions", "labels"])
def test_a_table_says_what_is_on_record_as_csv_and_as_parquet(
    recorded: LabelledGate, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", what, "--gate", GATE]) == 0
    columns, *rows = csv.reader(io.StringIO(capsys.readouterr().out))
    assert main(["export", what, "--format", "parquet", "--out", str(tmp_path / "a.parquet")]) == 0
    assert f"Wrote {len(rows)} {what}" in capsys.readouterr().err
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.column_names == columns
    for row, other in zip(rows, table.to_pylist(), strict=True):
        for cell, value in zip(row, other.values(), strict=True):
            said = "" if value is None else value.isoformat() if isinstance(value, datetime) else str(value)
            assert cell == said
    page = (ROOT / "docs" / "using.md").read_text()
    (told,) = re.findall(rf"^\| `{what}` \| (.*) \|$", page, re.MULTILINE)
    assert re.findall(r"`(\w+)`", told) == columns
    moment = "decided_at" if what == "decisions" else "received_at"
    moments = [row[columns.index(moment)] for row in rows]
    assert moments == sorted(moments)
    assert len(rows) == 30 if what == "decisions" else rows
    assert {row[columns.index("gate")] for row in rows} == {GATE}


def test_what_cannot_be_exported_is_told(
    recorded: LabelledGate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in (
        (["--gate", "nowhere"], "nowhere"),
        (["--format", "parquet"], "needs --out"),
        (["--format", "xlsx"], "csv or parquet"),
        (["--since", "soon"], "--since must be a time"),
        (["--out", str(tmp_path)], "cannot write"),
    ):
        assert main(["export", "decisions", *words]) != 0
        assert said in capsys.readouterr().err
    assert main(["export", "decisions", "--since", "0s"]) == 0
    assert capsys.readouterr().out.count("\n") == 1, "only the columns"
