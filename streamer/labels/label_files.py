"""Label files: severities in from CSV and JSON Lines, and the label queue out, to be filled in and read again.

The columns (CSV) and keys (JSONL) are the fields of the labels event: `gate`, `batch_id`, `attempt`, `response_id`,
`severity`, `kind`, `labeller`, `labelled_at`; others are ignored. `attempt` is 1 when absent, and `labelled_at` the
time that the reader is given. Signed labels have `signature` and `key_id` too. A file that the queue wrote has an empty `severity` in each row: rows that are still empty are
passed over, so that a partly filled file can be imported as often as you like.

What a spreadsheet could run is written with an apostrophe before it, and read without it (`streamer.security.csv_cells`). Where cells are separated by semicolons or tabs, a severity may have a decimal comma, as the
spreadsheets that separate so write it.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Literal, cast

import msgspec

from streamer.errors import BadMessage, UsageError
from streamer.events.codec import BEYOND_UTC
from streamer.events.excerpts import excerpt, one_line
from streamer.events.identifiers import check_name
from streamer.events.json_structure import check_structure
from streamer.events.labels import SCHEMA, LabelsV1, check_label, label_revision
from streamer.gates import labeller_names
from streamer.security.csv_cells import CsvTable, plain_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from _typeshed import SupportsWrite

    from streamer.gates.batch_key import BatchKey
    from streamer.journal import LabelRevision

FileFormat = Literal["csv", "jsonl"]

LABEL_FIELDS = ("gate", "batch_id", "attempt", "response_id", "severity", "kind", "labeller", "labelled_at")
_REQUIRED = ("gate", "batch_id", "response_id", "severity", "kind", "labeller")
_FROM_ARGUMENTS = frozenset({"gate", "kind", "labeller"})
_IDENTIFIERS = ("gate", "batch_id", "response_id", "kind", "labeller")
_SIGNATURE = ("signature", "key_id")
QUEUE_FIELDS = (*LABEL_FIELDS, "prompt", "references", "response", "urgent")

MAX_LINE_CHARACTERS = 4 * 1024 * 1024
"""Longest line and longest cell that is read: more than any event can hold."""
_MAX_LINE_DEPTH = 64
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)
_WHOLE_NUMBER = re.compile(r"[0-9]{1,10}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelTask:
    """One response that waits for a severity, with what a person needs to judge it. `urgent`: label it before others."""

    key: BatchKey
    response_id: str
    kind: str
    prompt: str
    response: str
    references: tuple[str, ...] | None = None
    urgent: bool = False


class LabelFileError(UsageError):
    """A label file cannot be read; the message says where and what to do.

    Parameters
    ----------
    file : str
        The file's name.
    line : int
        The line of the file, from 1, at which the row begins.
    column : str or None
        The column, when one is to blame.
    problem : str
        What is wrong and what to do.
    """

    def __init__(self, file: str, line: int, column: str | None, problem: str) -> None:
        where = f"{file}, line {line}" + (f", column {column}" if column else "")
        super().__init__(f"{where}: {problem}")
        self.file = file
        self.line = line
        self.column = column


class LabelReader:
    """Iterates over the labels of one file, row by row; memory does not grow with the file.

    Parameters
    ----------
    lines : IO[str]
        The open text; for CSV opened with ``newline=""``.
    file_format : {"csv", "jsonl"}
        How to read it.
    name : str
        The file's name, for errors.
    now : datetime
        The `labelled_at` of rows that have none, with zone.
    gate, kind, labeller : str or None
        For rows that do not say; a row that says otherwise is an error.
    default_labeller : callable or None
        Asked for the labeller of rows that do not say, where `labeller` is None; rows may say otherwise.

    Attributes
    ----------
    labels : int
        Labels read so far.
    unlabelled : int
        Rows passed over so far because their severity is empty.

    Raises
    ------
    UsageError
        When `gate`, `kind` or `labeller` can be none.
    LabelFileError
        While iterating, at the first row that is not a label. Rows before it have been yielded.
    """

    def __init__(
        self,
        lines: IO[str],
        file_format: FileFormat,
        *,
        name: str,
        now: datetime,
        gate: str | None = None,
        kind: str | None = None,
        labeller: str | None = None,
        default_labeller: Callable[[], str] | None = None,
    ) -> None:
        self._rows = _csv_rows if file_format == "csv" else _jsonl_rows
        self._lines = lines
        self._name = name
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

    def __iter__(self) -> Iterator[LabelRevision]:
        given = {*self._given} | ({"labeller"} if self._default_labeller is not None else set())
        rows = self._rows(self._lines, self._name, frozenset(given))
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
) -> Iterator[LabelReader]:
    """Open a label file: `.csv`, `.tsv`, `.jsonl` or `.ndjson`, each also with `.gz`. See `LabelReader`.

    Raises
    ------
    UsageError
        When the name says no known format, or the file cannot be opened; `LabelFileError` while iterating.
    """
    file_format = format_of(path)
    with ExitStack() as stack:
        try:
            raw: IO[bytes] = stack.enter_context(path.open("rb"))
        except OSError as error:
            raise UsageError(f"{path} cannot be opened: {error.strerror}") from error
        if path.suffix == ".gz":
            raw = cast("IO[bytes]", stack.enter_context(gzip.GzipFile(fileobj=raw)))
        lines = stack.enter_context(io.TextIOWrapper(raw, encoding="utf-8-sig", newline=""))
        yield LabelReader(
            lines,
            file_format,
            name=path.name,
            now=now,
            gate=gate,
            kind=kind,
            labeller=labeller,
            default_labeller=default_labeller,
        )


def format_of(path: Path) -> FileFormat:
    """Return a label file's format by its name. Raises `UsageError` for a name of no known format."""
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if suffix.lower() in {".csv", ".tsv"}:
        return "csv"
    if suffix.lower() in {".jsonl", ".ndjson"}:
        return "jsonl"
    raise UsageError(f"{path.name} is neither CSV (.csv, .tsv) nor JSON Lines (.jsonl, .ndjson); rename it")


def write_queue(tasks: Iterable[LabelTask], lines: SupportsWrite[str], file_format: FileFormat) -> int:
    """Write the label queue for people to fill in `severity` and `labeller`; `LabelReader` reads it back.

    Parameters
    ----------
    tasks : iterable of LabelTask
        What waits for a label, in the order in which it should be labelled.
    lines : anything with ``write``
        Where to; for CSV opened with ``newline=""``.
    file_format : {"csv", "jsonl"}
        How to write it.

    Returns
    -------
    int
        The number of rows written.
    """
    written = 0
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


def _csv_rows(lines: IO[str], name: str, given: frozenset[str]) -> Iterator[tuple[int, Mapping[str, object]]]:
    first = lines.readline(MAX_LINE_CHARACTERS)
    if not first.strip():
        raise LabelFileError(name, 1, None, f"the first line must name the columns: {','.join(LABEL_FIELDS)}")
    delimiter = max(",;\t", key=first.count)
    header = [column.strip().lower() for column in next(csv.reader([first], delimiter=delimiter))]
    for field in _REQUIRED:
        if field not in header and field not in given:
            raise LabelFileError(name, 1, field, _missing(field))
    for field in LABEL_FIELDS:
        if header.count(field) > 1:
            raise LabelFileError(name, 1, field, "the column occurs twice; remove one")
    # The limit belongs to the csv module as a whole; it is only ever raised.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_CHARACTERS))
    table = csv.reader(_bounded(lines, name), delimiter=delimiter, strict=True)
    begins = 2
    while True:
        try:
            cells = next(table, None)
        except csv.Error as error:
            raise LabelFileError(
                name, begins, None, f"not CSV ({error}); check the quotes of this row"
            ) from None
        if cells is None:
            return
        if any(cell.strip() for cell in cells):
            if len(cells) != len(header):
                raise LabelFileError(
                    name,
                    begins,
                    None,
                    f"the row has {len(cells)} cells but the first line names {len(header)} columns; "
                    "put a cell that holds a separator into double quotes",
                )
            row = dict(zip(header, cells, strict=True))
            if delimiter != ",":
                row["severity"] = row["severity"].replace(",", ".", 1)
            yield begins, _typed(row, name, begins)
        begins = table.line_num + 2


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


def _jsonl_rows(
    lines: IO[str], name: str, _given: frozenset[str]
) -> Iterator[tuple[int, Mapping[str, object]]]:
    for line, text in enumerate(_bounded(lines, name, first=1), start=1):
        if not text.strip():
            continue
        try:
            encoded = text.encode()
            row = msgspec.json.decode(encoded)
            check_structure(encoded, _MAX_LINE_DEPTH)
        except (msgspec.DecodeError, RecursionError) as error:
            raise LabelFileError(
                name, line, None, f"not JSON ({one_line(str(error))}); write one object per line"
            ) from None
        except BadMessage as bad:
            raise LabelFileError(name, line, None, bad.detail) from None
        if not isinstance(row, dict):
            raise LabelFileError(name, line, None, "not a JSON object; write one object per line")
        yield line, row


def _bounded(lines: IO[str], name: str, first: int = 2) -> Iterator[str]:
    number = first
    while text := lines.readline(MAX_LINE_CHARACTERS + 1):
        if len(text) > MAX_LINE_CHARACTERS:
            raise LabelFileError(
                name, number, None, f"longer than {MAX_LINE_CHARACTERS} characters; is this a label file?"
            )
        yield text
        number += 1


def _missing(field: str) -> str:
    return "missing; add it to the file" + (f", or give --{field}" if field in _FROM_ARGUMENTS else "")


def _explain(problem: str, fields: Mapping[str, object]) -> tuple[str | None, str]:
    """Turn the decoder's sentence into one for people who fill in tables."""
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
