"""Label files: severities in from CSV and JSON Lines, and the label queue out, to be filled in and read again.

The columns (CSV) and keys (JSONL) are the fields of the labels event: `gate`, `batch_id`, `attempt`, `response_id`,
`severity`, `kind`, `labeller`, `labelled_at`; others are ignored. `attempt` is 1 when absent, and `labelled_at` the
time that the reader is given. Signed labels have `signature` and `key_id` too. A file that the queue wrote has an empty `severity` in each row: rows that are still empty are
passed over, so that a partly filled file can be imported as often as you like.

What a spreadsheet could run is written with an apostrophe before it, and read without it (`streamer.security.csv_cells`). Where cells are separated by semicolons or tabs, a severity may have a decimal comma, as the
spreadsheets that separate so write it.
"""

from __future__ import annotations

import json
import re
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import msgspec

from streamer.clouds.line_files import opened
from streamer.clouds.tables.rows import (
    CsvRows,
    TableError,
    TextLines,
    format_by_name,
    json_rows,
    number_of,
    parquet_rows,
)
from streamer.errors import BadMessage, UsageError
from streamer.events.codec import BEYOND_UTC
from streamer.events.excerpts import excerpt, one_line
from streamer.events.identifiers import check_name
from streamer.events.labels import SCHEMA, LabelsV1, check_label, label_revision
from streamer.gates import labeller_names
from streamer.labels.bridges.registry import bridges
from streamer.security.csv_cells import CsvTable, plain_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from _typeshed import SupportsWrite

    from streamer.clouds.tables.rows import Lines, TableFormat
    from streamer.gates.batch_key import BatchKey
    from streamer.journal import LabelRevision
    from streamer.labels.bridges.bridge import Bridge

FileFormat = Literal["csv", "jsonl"]

LABEL_FIELDS = ("gate", "batch_id", "attempt", "response_id", "severity", "kind", "labeller", "labelled_at")
_REQUIRED = ("gate", "batch_id", "response_id", "severity", "kind", "labeller")
_FROM_ARGUMENTS = frozenset({"gate", "kind", "labeller"})
_IDENTIFIERS = ("gate", "batch_id", "response_id", "kind", "labeller")
_SIGNATURE = ("signature", "key_id")
QUEUE_FIELDS = (*LABEL_FIELDS, "prompt", "references", "response", "urgent")

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)
_WHOLE_NUMBER = re.compile(r"[0-9]{1,10}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelTask:
    """One response that waits for a severity, with what a person needs to judge it.

    `urgent` : label it before others. `decided_at` : when its batch was decided, with zone.
    """

    key: BatchKey
    response_id: str
    kind: str
    prompt: str
    response: str
    references: tuple[str, ...] | None = None
    urgent: bool = False
    decided_at: datetime | None = None


LabelFileError = TableError
"""A label file cannot be read; the message says where and what to do."""


class LabelReader:
    """Iterates over the labels of one file, row by row; memory does not grow with the file.

    Parameters
    ----------
    lines : lines of text, or a path
        The open text, for CSV opened with ``newline=""``; for Parquet the file.
    file_format : {"csv", "jsonl", "parquet"}, or the name of a bridge
        How to read it; see `streamer.labels.bridges`. A labelling tool's export is read as a whole.
    name : str
        The file's name, for errors.
    now : datetime
        The `labelled_at` of rows that have none, with zone.
    gate, kind, labeller : str or None
        For rows that do not say; a row that says otherwise is an error.
    default_labeller : callable or None
        Asked for the labeller of rows that do not say, where `labeller` is None; rows may say otherwise.
    columns : mapping
        The column of a field, where it does not have the field's name.
    answers : callable
        Returns the answers by the ids of their tasks, for bridges whose exports have no more (`Bridge.by_task_id`).

    Attributes
    ----------
    labels : int
        Labels read so far.
    unlabelled : int
        Rows passed over so far because their severity is empty.
    unmatched : int
        Labels passed over so far because the id of their task is of none of `answers`.

    Raises
    ------
    UsageError
        When `gate`, `kind` or `labeller` is not a valid one.
    LabelFileError
        While iterating, at the first row that is not a label. Rows before it have been yielded.
    """

    def __init__(
        self,
        lines: Lines | Path,
        file_format: TableFormat | str,
        *,
        name: str,
        now: datetime,
        gate: str | None = None,
        kind: str | None = None,
        labeller: str | None = None,
        default_labeller: Callable[[], str] | None = None,
        columns: Mapping[str, str] = MappingProxyType({}),
        answers: Callable[[], Mapping[str, Mapping[str, object]]] = dict,
    ) -> None:
        self._lines = lines
        self._format = file_format
        self._name = name
        self._columns = dict(columns)
        self._answers = answers
        self._now = now
        name_of = None if labeller is None else labeller_names.normalised(labeller)
        if name_of is not None and (wrong := labeller_names.fault(name_of)) is not None:
            raise UsageError(f"--labeller {wrong}: {excerpt(name_of)}")
        given = {"gate": gate, "kind": kind, "labeller": name_of}
        self._given = {field: text for field, text in given.items() if text is not None}
        try:
            for field in self._given.keys() - {"labeller"}:
                check_name(f"--{field}", self._given[field])
        except BadMessage as bad:
            raise UsageError(bad.detail) from None
        self._default_labeller = default_labeller
        self.labels = 0
        self.unlabelled = 0
        self.unmatched = 0

    def __iter__(self) -> Iterator[LabelRevision]:
        given = {*self._given} | ({"labeller"} if self._default_labeller is not None else set())
        rows = self._rows(frozenset(given))
        while True:
            try:
                line, row = next(rows)
            except StopIteration:
                return
            except UnicodeDecodeError as error:
                raise UsageError(f"{self._name} is not UTF-8 ({error.reason}); save it as UTF-8") from error
            except (OSError, EOFError, zlib.error) as error:
                raise UsageError(f"{self._name} cannot be read to its end: {error}") from error
            if row.get("severity") in (None, ""):
                self.unlabelled += 1
                continue
            label = self._label(line, row)
            self.labels += 1
            yield label_revision(label)

    def _rows(self, given: frozenset[str]) -> Iterator[tuple[int, Mapping[str, object]]]:
        """The rows by the names of fields, with numbers where they hold numbers."""
        if self._format == "parquet":
            assert isinstance(self._lines, Path)
            header, rows = parquet_rows(self._lines)
            _check_header(self._renamed(dict.fromkeys(header)), self._name, given)
            for line, row in rows:
                yield line, _as_event(self._renamed(row))
            return
        assert not isinstance(self._lines, Path)
        if self._format in bridges():
            yield from self._exported(bridges()[self._format], self._lines)
            return
        if self._format == "jsonl":
            for line, row in json_rows(self._lines, self._name):
                yield line, self._renamed(row)
            return
        table = CsvRows(self._lines, self._name, ",".join(LABEL_FIELDS))
        header = [self._field(column).lower() for column in table.header]
        for field in LABEL_FIELDS:
            if header.count(field) > 1:
                raise LabelFileError(self._name, 1, field, "the column occurs twice; remove one")
        self._renamed(dict.fromkeys(table.header))
        _check_header(header, self._name, given)
        for begins, cells in table:
            text = dict(zip(header, cells, strict=True))
            if table.delimiter != ",":
                text["severity"] = text["severity"].replace(",", ".", 1)
            yield begins, _typed(text, self._name, begins)

    def _exported(self, bridge: Bridge, lines: Lines) -> Iterator[tuple[int, Mapping[str, object]]]:
        """The labels that a tool's export holds, by the numbers of its records from 1."""
        try:
            records = bridge.records(msgspec.json.decode("".join(iter(lines.readline, ""))))
        except msgspec.DecodeError as error:
            raise UsageError(
                f"{self._name} is not JSON ({one_line(str(error))}); in {bridge.title} {bridge.back}"
            ) from None
        if records is None or not all(isinstance(record, dict) for record in records):
            raise UsageError(f"{self._name} is no list of records; in {bridge.title} {bridge.back}")
        for number, record in enumerate(records, start=1):
            try:
                found = list(bridge.labels(record))
            except (ValueError, TypeError, AttributeError) as error:
                raise LabelFileError(
                    self._name, number, None, f"{error} (is this from {bridge.title}?)", unit="record"
                ) from None
            if not found:
                self.unlabelled += 1
            for row in found:
                if "labeller" in self._given:
                    row["labeller"] = None
                if bridge.by_task_id:
                    answer = self._answers().get(str(row["task"]))
                    if answer is None:
                        self.unmatched += 1
                        continue
                    row |= answer
                yield number, row

    def _field(self, column: str) -> str:
        found = next((field for field, named in self._columns.items() if named == column), None)
        # A column that has a field's name by chance gives way to the one that was named.
        return found or ("" if column.lower() in self._columns else column)

    def _renamed(self, row: Mapping[str, object]) -> dict[str, object]:
        for field, column in self._columns.items():
            if column not in row and self._format != "jsonl":
                raise UsageError(
                    f"{self._name} has no column {column!r} for {field}; it has {', '.join(row)}"
                )
        kept = {name: value for name, value in row.items() if name not in self._columns}
        return kept | {field: row[column] for field, column in self._columns.items() if column in row}

    def _label(self, line: int, row: Mapping[str, object]) -> LabelsV1:
        fields: dict[str, object] = {"schema": SCHEMA, "labelled_at": self._now, **self._given}
        for field in LABEL_FIELDS:
            stated = row.get(field)
            if stated is None or stated == "":
                continue
            if field == "labeller" and isinstance(stated, str):
                stated = labeller_names.normalised(stated)
                if (wrong := labeller_names.fault(stated)) is not None:
                    raise LabelFileError(self._name, line, field, f"{excerpt(stated)} {wrong}")
            if field in self._given and stated != self._given[field]:
                raise LabelFileError(
                    self._name,
                    line,
                    field,
                    f"the row says {excerpt(str(stated))} but the command says {excerpt(self._given[field])}; "
                    f"leave out --{field}, or correct the row",
                )
            fields[field] = stated
        if "labeller" not in fields and self._default_labeller is not None:
            fields["labeller"] = self._default_labeller()
        for field in _REQUIRED:
            if field not in fields:
                raise LabelFileError(self._name, line, field, _missing(field))
        fields |= {name: row[name] for name in _SIGNATURE if row.get(name) not in (None, "")}
        if row.get("schema") not in (None, "", SCHEMA):
            raise LabelFileError(self._name, line, "schema", f"must be {SCHEMA} or absent")
        try:
            event = msgspec.convert(fields, LabelsV1)
            check_label(event)
        except msgspec.ValidationError as error:
            column, problem = _explain(str(error), fields)
            raise LabelFileError(self._name, line, column, problem) from None
        except BadMessage as bad:
            raise LabelFileError(self._name, line, bad.detail.split(" ", 1)[0], bad.detail) from None
        return event


@contextmanager
def open_labels(
    path: Path,
    *,
    now: datetime,
    gate: str | None = None,
    kind: str | None = None,
    labeller: str | None = None,
    default_labeller: Callable[[], str] | None = None,
    columns: Mapping[str, str] = MappingProxyType({}),
    bridge: str | None = None,
    answers: Callable[[], Mapping[str, Mapping[str, object]]] = dict,
) -> Iterator[LabelReader]:
    """Open a label file: `.csv`, `.tsv`, `.jsonl` or `.ndjson`, each also with `.gz`, or `.parquet`. See `LabelReader`.

    `bridge` : the labelling tool that it is exported from; None: none.

    Raises
    ------
    UsageError
        When the name says no known format, or the file cannot be opened; `LabelFileError` while iterating.
    """
    file_format: TableFormat | str | None = bridge or format_by_name(path)
    if file_format is None:
        raise UsageError(
            f"{path.name} is neither CSV (.csv, .tsv) nor JSON Lines (.jsonl, .ndjson) nor Parquet (.parquet); rename it"
        )

    def reader(lines: Lines | Path) -> LabelReader:
        return LabelReader(
            lines,
            file_format,
            name=path.name,
            now=now,
            gate=gate,
            kind=kind,
            labeller=labeller,
            default_labeller=default_labeller,
            columns=columns,
            answers=answers,
        )

    with opened(path, str(path)) as raw:
        yield reader(path if file_format == "parquet" else TextLines(raw, path.name))


def format_of(path: Path) -> FileFormat:
    """Return the format in which a queue is written, by its file's name. Raises `UsageError` for any other."""
    found = format_by_name(path)
    if found is None or found == "parquet":
        raise UsageError(
            f"{path.name} is neither CSV (.csv, .tsv) nor JSON Lines (.jsonl, .ndjson); rename it"
        )
    return found


def write_queue(tasks: Iterable[LabelTask], lines: SupportsWrite[str], file_format: FileFormat | str) -> int:
    """Write the label queue for people to fill in `severity` and `labeller`; `LabelReader` reads it back.

    Parameters
    ----------
    tasks : iterable of LabelTask
        What waits for a label, in the order in which it should be labelled.
    lines : anything with ``write``
        Where to; for CSV opened with ``newline=""``.
    file_format : {"csv", "jsonl"}, or the name of a bridge
        How to write it; see `streamer.labels.bridges`.

    Returns
    -------
    int
        The number of rows written.
    """
    written = 0
    if file_format in bridges():
        return _write_tasks(tasks, lines, bridges()[file_format])
    table = CsvTable(lines, line_end="\r\n") if file_format == "csv" else None
    if table is not None:
        table.write(QUEUE_FIELDS)
    for task in tasks:
        references = None if task.references is None else list(task.references)
        row = {
            "gate": task.key.gate,
            "batch_id": task.key.batch_id,
            "attempt": task.key.attempt,
            "response_id": task.response_id,
            "severity": None,
            "kind": task.kind,
            "labeller": None,
            "labelled_at": None,
            "prompt": task.prompt,
            "references": references,
            "response": task.response,
            "urgent": "yes" if task.urgent else "",
        }
        if table is None:
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")
        else:
            if references is not None:
                row["references"] = json.dumps(references, ensure_ascii=False)
            table.write(row.values())
        written += 1
    return written


def _write_tasks(tasks: Iterable[LabelTask], lines: SupportsWrite[str], bridge: Bridge) -> int:
    written = 0
    lines.write("[")
    for task in tasks:
        lines.write(",\n" if written else "\n")
        lines.write(json.dumps(bridge.task(task), ensure_ascii=False))
        written += 1
    lines.write("\n]\n")
    return written


def _check_header(header: Iterable[str], name: str, given: frozenset[str]) -> None:
    there = set(header)
    for field in _REQUIRED:
        if field not in there and field not in given:
            raise LabelFileError(name, 1, field, _missing(field))


def _as_event(row: Mapping[str, object]) -> dict[str, object]:
    """A row of typed columns with the types of the event: NaN among numbers is an empty cell, an id may be a number."""
    there = {
        name: number_of(value) if isinstance(value, Decimal) else value
        for name, value in row.items()
        if value is not None and value == value
    }
    for field in (*_IDENTIFIERS, "attempt"):
        value = there.get(field)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and field != "attempt":
            value = str(value)
        if value is not None:
            there[field] = value
    return there


def _typed(cells: dict[str, str], name: str, line: int) -> Mapping[str, object]:
    """Turn the cells that hold numbers into numbers."""
    row: dict[str, object] = {
        field: plain_cell(text) for field, text in cells.items() if field in _IDENTIFIERS
    }
    severity, attempt = cells.get("severity", "").strip(), cells.get("attempt", "").strip()
    if not severity:
        row["severity"] = None
    elif _NUMBER.fullmatch(severity):
        row["severity"] = float(severity)
    else:
        hint = "; write it with a point" if "," in severity else ""
        raise LabelFileError(
            name, line, "severity", f"{excerpt(severity)} is not a number from 0 (fine) to 1 (worst){hint}"
        )
    if attempt and not _WHOLE_NUMBER.fullmatch(attempt):
        raise LabelFileError(name, line, "attempt", f"{excerpt(attempt)} is not a whole number from 1")
    row["attempt"] = int(attempt) if attempt else None
    row["labelled_at"] = cells.get("labelled_at", "").strip()
    for field in ("schema", *_SIGNATURE):
        row[field] = cells.get(field, "").strip()
    return row


def _missing(field: str) -> str:
    return "missing; add it to the file" + (f", or give --{field}" if field in _FROM_ARGUMENTS else "")


def _explain(problem: str, fields: Mapping[str, object]) -> tuple[str | None, str]:
    """Rephrase the decoder's sentence for people who fill in tables."""
    what, _, path = problem.partition(" - at `$.")
    column = path.rstrip("`") or None
    shown = excerpt(str(fields.get(column))) if column is not None else ""
    if column == "severity":
        return column, f"{shown} is not a number from 0 (fine) to 1 (worst)"
    if column == "labelled_at" and BEYOND_UTC in what:
        return column, f"{one_line(what)}; correct it, or leave it empty"
    if column == "labelled_at":
        return (
            column,
            f"{shown} is not a time with zone; write it like 2026-11-20T12:00:00Z, or leave it empty",
        )
    if column == "attempt":
        return column, f"{shown} is not a whole number from 1 to 2147483647"
    return column, f"{shown}: {one_line(what)}"
