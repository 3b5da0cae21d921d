"""`streamer export`: gates as files; decisions, labels and segments as tables."""

import hashlib
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from streamer import wiring
from streamer.cli import options as opt
from streamer.cli.console import note, say
from streamer.cli.gate_files import SCHEMA, gate_file, schema
from streamer.errors import UsageError, cannot, named_beside
from streamer.extras import needed_by
from streamer.security.csv_cells import CsvTable

exports = typer.Typer(no_args_is_help=True)
Pages = Iterator[Sequence[Sequence[Any]]]
"""Rows, some at a time."""
_AT_ONCE = 20_000
"""Rows of a row group: engines read these side by side."""

GateOption = Annotated[
    str | None,
    opt.option("GATE", "Of this gate. [default: of all]", ..., autocompletion=opt.gate_names),
]
SinceOption = Annotated[str | None, opt.option("TIME", "How far back, like 12h, 30d. [default: all]", ...)]
FormatOption = Annotated[
    str, opt.option("csv|parquet", "Of the table; parquet needs --out.", ..., "--format")
]
OutOption = Annotated[Path | None, opt.option("FILE", "Where to. [default: standard output]", ...)]


@exports.command("decisions")
def export_decisions(
    gate: GateOption = None,
    since: SinceOption = None,
    form: FormatOption = "csv",
    out: OutOption = None,
) -> None:
    """Write a row for each decision, without texts: docs/using.md says what the columns are."""
    _export("decisions", gate, since, form, out)


@exports.command("labels")
def export_labels(
    gate: GateOption = None,
    since: SinceOption = None,
    form: FormatOption = "csv",
    out: OutOption = None,
) -> None:
    """Write a row for each severity that was given; of a labeller's for one answer the last counts."""
    _export("labels", gate, since, form, out)


def _export(what: str, gate: str | None, since: str | None, form: str, out: Path | None) -> None:
    if form not in ("csv", "parquet"):
        raise UsageError(f"--format must be csv or parquet, not {form!r}")
    if form == "parquet" and out is None:
        raise UsageError("--format parquet needs --out FILE")
    after = None if since is None else wiring.now() - timedelta(seconds=opt.seconds(since, "--since"))
    with wiring.record(gate) as store:
        for text in store.evidence.given_out(after) if what == "decisions" else ():
            note(text)
        with store.reports.table(what, gate=gate, since=after) as (columns, pages):
            if out is None:
                _csv(sys.stdout, columns, pages)
                return
            with _whole(out) as part:
                if form == "parquet":
                    count = _parquet(part, columns, chain.from_iterable(pages))
                else:
                    with part.open("w", encoding="utf-8", newline="") as file:
                        count = _csv(file, columns, pages)
    note(f"Wrote {count:,} {what} into {out}.")


@contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """Where to write a file that gets its name once it is whole: a part looks like a table."""
    part = out if out.exists() and not out.is_file() else named_beside(out, ".partial")
    try:
        with cannot(f"write {out}"):
            yield part
            if part != out:
                part.replace(out)
    finally:
        if part != out:
            part.unlink(missing_ok=True)


def _csv(lines: TextIO, columns: Mapping[str, type], pages: Pages) -> int:
    table, count = CsvTable(lines), 0
    table.write(columns)
    for page in pages:
        count += len(page)
        for row in page:
            table.write(_text(cell) if isinstance(cell, (datetime, dict)) else cell for cell in row)
    return count


def _parquet(out: Path, columns: Mapping[str, Any], rows: Iterator[Any], **said: str) -> int:
    """Write rows, and what is `said` of them as the file's own metadata; returns how many."""
    with needed_by("export to Parquet", "parquet"):
        import pyarrow
        from pyarrow import parquet

    kinds = {
        str: pyarrow.string(),
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        bool: pyarrow.bool_(),
        datetime: pyarrow.timestamp("us", tz="UTC"),
    }
    answer = pyarrow.struct([(name, kinds[kind]) for name, kind in _ANSWER.items()])
    kinds[list] = pyarrow.list_(answer)
    schema_ = pyarrow.schema(
        [(name, kinds.get(kind, kinds[str])) for name, kind in columns.items()], metadata=said
    )
    count = 0
    with parquet.ParquetWriter(out, schema_, compression="zstd") as writer:
        while page := list(islice(rows, _AT_ONCE)):
            count += len(page)
            told = [[_text(cell) if isinstance(cell, dict) else cell for cell in row] for row in page]
            filled = zip(*told, strict=True)
            arrays = [pyarrow.array(cells, field.type) for cells, field in zip(filled, schema_, strict=True)]
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema_))
    return count


def _text(cell: datetime | Mapping[str, Any]) -> str:
    return cell.isoformat() if isinstance(cell, datetime) else json.dumps(cell, ensure_ascii=False)


_ANSWER: dict[str, type] = {
    "response_id": str, "score": float, "raw_energy": float, "action": str, "drawn": bool,
}  # fmt: skip
"""What `answers` has of each response of a decision, as its leaf has it."""
_SEALED: dict[str, type] = {
    "kind": str, "recorded_at": datetime, "index": int, "leaf": str, "answers": list,
    "data": str,
}  # fmt: skip
"""Columns of a segment beside those of decisions."""


@exports.command("segment")
def export_segment(
    segment: Path = opt.argument("FILE", "What `streamer db give-out` wrote."),
    out: Path = opt.option("FILE", "Where to, as Parquet.", ...),
) -> None:
    """Write a row for each leaf of a segment, without texts; docs/using.md says what the columns are.

    It needs no database, and so cannot prove that no leaf is missing.
    """
    from streamer.audit.bundle import leaves_of_segment, reading
    from streamer.store.log.reports import columns_of

    columns = columns_of("decisions") | _SEALED
    with reading(segment) as bundle, _whole(out) as part, segment.open("rb") as file:
        if damaged := bundle.damaged():
            raise UsageError(f"{segment} was changed: {damaged[0]} is not what was written")
        if "segment" not in bundle.manifest:
            raise UsageError(f"{segment} is no segment, as `streamer db give-out` writes them")
        rows = ([row.get(name) for name in columns] for row in map(_told, leaves_of_segment(bundle)))
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        complete = (
            f"whether leaves are missing only the record says: the SHA-256 of {segment.name}, {sha256},"
            f" is in it, as `streamer audit verify --segment {segment.name}` shows"
        )
        count = _parquet(part, columns, rows, segment=segment.name, sha256=sha256, complete=complete)
    note(f"Wrote {count:,} leaves into {out}; {complete}.")


def _told(leaf: Sequence[dict[str, Any]]) -> dict[str, Any]:
    from streamer.audit.story import leaf_data

    line, *policy = leaf
    facts = line["facts"]
    batch = facts.get("batch") or facts.get("response") or ()
    told = dict(zip(("gate", "batch_id", "attempt"), batch, strict=False))
    told |= dict(zip(("log_id", "topic", "partition", "offset"), line["source"], strict=True))
    told |= {name: line[name] for name in ("kind", "index", "leaf")}
    told["recorded_at"] = datetime.fromisoformat(line["recorded_at"])
    told["data"] = leaf_data(line).decode()
    return told | (_decision(facts, *policy) if policy else {})


def _decision(facts: dict[str, Any], policy: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The columns of a decision, from its leaf and its policy."""
    answers = [dict(zip(_ANSWER, one, strict=True)) for one in facts["responses"]]
    scores = [one["score"] for one in answers if one["score"] is not None]
    return facts | {
        "decided_at": datetime.fromisoformat(facts["decided_at"]),
        "responses": len(answers),
        "shipped": sum(one["action"] == "ship" for one in answers),
        "best_score": max(scores, default=None),
        "mean_score": round(1e6 * math.fsum(scores)) / (1e6 * len(scores)) if scores else None,
        "policy_version": facts["policy"],
        "policy_state": facts.get("cut_state", policy["state"]),
        "lambda": facts.get("cut_threshold") if "cut_state" in facts else policy["threshold"],
        **{name: settings[name] for name in ("alpha", "method", "shape")},
        "answers": answers,
    }


@exports.command("gates")
def export_gates(
    to: Path | None = opt.option("FOLDER", "Write a file each, and the schema that editors read."),
) -> None:
    """Write gates as `streamer apply` reads them. Applied as they are, they change nothing."""
    with wiring.record() as store:
        gates = store.gates.list()
    texts = {f"{one.gate}.toml": gate_file(one.gate, one.settings) for one in gates}
    if to is None:
        say("\n\n".join(texts.values()))
        return
    with cannot(f"write {to}"):
        to.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (to / name).write_text(f"#:schema ./{SCHEMA}\n\n{text}\n", "utf-8")
        (to / SCHEMA).write_text(schema(), "utf-8")
    note(f"Wrote {', '.join(texts) or 'no gate'} and {SCHEMA} into {to}.")
