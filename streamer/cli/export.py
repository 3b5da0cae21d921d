"""`streamer export`: gates as files, and decisions and labels as tables."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from streamer import wiring
from streamer.cli import options as opt
from streamer.cli.console import note, say
from streamer.cli.gate_files import SCHEMA, gate_file, schema
from streamer.errors import UsageError, why
from streamer.extras import needed_by
from streamer.security.csv_cells import CsvTable

exports = typer.Typer(no_args_is_help=True)
Pages = Iterator[Sequence[Sequence[Any]]]
"""Rows, some at a time."""

GateOption = Annotated[
    str | None, opt.option("GATE", "Of this gate. [default: of all]", autocompletion=opt.gate_names)
]
SinceOption = Annotated[str | None, opt.option("TIME", "How far back, like 12h, 30d. [default: all]")]
FormatOption = Annotated[str, opt.option("csv|parquet", "Of the table; parquet needs --out.", "--format")]
OutOption = Annotated[Path | None, opt.option("FILE", "Where to. [default: standard output]")]


@exports.command("decisions")
def export_decisions(
    gate: GateOption = None, since: SinceOption = None, form: FormatOption = "csv", out: OutOption = None
) -> None:
    """Write a row for each decision, without texts: docs/using.md says what the columns are."""
    _export("decisions", gate, since, form, out)


@exports.command("labels")
def export_labels(
    gate: GateOption = None, since: SinceOption = None, form: FormatOption = "csv", out: OutOption = None
) -> None:
    """Write a row for each severity that was given; of a labeller's for one answer the last counts."""
    _export("labels", gate, since, form, out)


def _export(what: str, gate: str | None, since: str | None, form: str, out: Path | None) -> None:
    if form not in ("csv", "parquet"):
        raise UsageError(f"--format must be csv or parquet, not {form!r}")
    if form == "parquet" and out is None:
        raise UsageError("--format parquet needs --out FILE")
    after = None if since is None else wiring.now() - timedelta(seconds=opt.seconds(since, "--since"))
    with wiring.open_store(wiring.load_settings()) as store:
        if gate is not None:
            store.gates.get(gate)
        for text in store.evidence.given_out(after) if what == "decisions" else ():
            note(text)
        with store.reports.table(what, gate=gate, since=after) as (columns, pages):
            if out is None:
                _csv(sys.stdout, columns, pages)
                return
            try:
                if form == "csv":
                    with out.open("w", encoding="utf-8", newline="") as file:
                        count = _csv(file, columns, pages)
                else:
                    count = _parquet(out, columns, pages)
            except OSError as error:
                raise UsageError(f"cannot write {out}: {why(error)}") from None
    note(f"Wrote {count:,} {what} into {out}.")


def _csv(lines: TextIO, columns: Mapping[str, type], pages: Pages) -> int:
    table, count = CsvTable(lines), 0
    table.write(columns)
    for page in pages:
        count += len(page)
        for row in page:
            table.write(_text(cell) if isinstance(cell, (datetime, dict)) else cell for cell in row)
    return count


def _parquet(out: Path, columns: Mapping[str, type], pages: Pages) -> int:
    with needed_by("export --format parquet", "parquet"):
        import pyarrow
        from pyarrow import parquet

    kinds = {
        str: pyarrow.string(),
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        bool: pyarrow.bool_(),
        datetime: pyarrow.timestamp("us", tz="UTC"),
    }
    schema_ = pyarrow.schema([(name, kinds.get(kind, kinds[str])) for name, kind in columns.items()])
    count = 0
    with parquet.ParquetWriter(out, schema_) as writer:
        for page in pages:
            count += len(page)
            told = [[_text(cell) if isinstance(cell, dict) else cell for cell in row] for row in page]
            filled = zip(*told, strict=True)
            arrays = [pyarrow.array(cells, field.type) for cells, field in zip(filled, schema_, strict=True)]
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema_))
    return count


def _text(cell: datetime | Mapping[str, Any]) -> str:
    return cell.isoformat() if isinstance(cell, datetime) else json.dumps(cell, ensure_ascii=False)


@exports.command("gates")
def export_gates(
    to: Annotated[
        Path | None, opt.option("FOLDER", "Write a file each, and the schema that editors read.")
    ] = None,
) -> None:
    """Write gates as `streamer apply` reads them. Applied as they are, they change nothing."""
    with wiring.open_store(wiring.load_settings()) as store:
        gates = store.gates.list()
    texts = {f"{one.gate}.toml": gate_file(one.gate, one.settings) for one in gates}
    if to is None:
        say("\n\n".join(texts.values()))
        return
    try:
        to.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (to / name).write_text(f"#:schema ./{SCHEMA}\n\n{text}\n", "utf-8")
        (to / SCHEMA).write_text(schema(), "utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {to}: {why(error)}") from None
    note(f"Wrote {', '.join(texts) or 'no gate'} and {SCHEMA} into {to}.")
