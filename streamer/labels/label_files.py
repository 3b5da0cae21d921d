"""Label files: severities in from CSV and JSON Lines, and the label queue out, to be filled in and read again.

The columns (CSV) and keys (JSONL) are the fields of the labels event: `gate`, `batch_id`, `attempt`, `response_id`,
`severity`, `severities` (a JSON object), `kind`, `labeller`, `labelled_at`; others are ignored. `attempt` is 1 when absent, and `labelled_at` the
time that the reader is given. Signed labels have `signature` and `key_id` too. A file that the queue wrote has an empty `severity` in each row: rows that are still empty are
passed over, so that a partly filled file can be imported as often as you like.

What a spreadsheet could run is written with an apostrophe before it, and read without it (`streamer.security.csv_cells`). Where cells are separated by semicolons or tabs, a severity may have a decimal comma, as the
spreadsheets that separate so write it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from streamer.clouds.cloud_files import AS_IT_IS, read_clouds
from streamer.clouds.line_files import opened
from streamer.clouds.tables.answers import Reading
from streamer.clouds.tables.columns import CORRECT, SCORE, shown_columns
from streamer.clouds.tables.formats import FORMATS
from streamer.clouds.tables.leaks import ScoreCheck
from streamer.clouds.tables.marks import Annotators, number_in, several_note, severity_of
from streamer.clouds.tables.rows import Lines, Table, TableError, TextLines, format_by_name, open_table
from streamer.clouds.tables.values import NotText, name_of, plain, text_of, value_at
from streamer.errors import BadMessage, UsageError
from streamer.events.codec import BEYOND_UTC
from streamer.events.excerpts import excerpt, one_line
from streamer.events.identifiers import check_name
from streamer.events.labels import SCHEMA, FieldSeverities, LabelsV1, check_label, label_revision
from streamer.gates import labeller_names
from streamer.journal import LabelRevision
from streamer.labels.bridges.bridge import Bridge, identity
from streamer.labels.bridges.registry import bridges
from streamer.labels.severity import LabelTask
from streamer.security.csv_cells import CsvTable

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

FileFormat = Literal["csv", "jsonl"]

LABEL_FIELDS = ("gate", "batch_id", "attempt", "response_id", "severity", "kind", "labeller", "labelled_at")
NAMED_FIELDS = (*LABEL_FIELDS, "correct", "score")
"""What `--column` may name the column of: `correct` stands in place of `severity`."""
_REQUIRED = ("gate", "batch_id", "response_id", "severity", "kind", "labeller")
_FROM_ARGUMENTS = frozenset({"gate", "kind", "labeller"})
_IDENTIFIERS = frozenset(("gate", "batch_id", "response_id", "kind", "labeller"))
_SIGNATURE = ("signature", "key_id")
_UNSAID = ("schema", "severities", *_SIGNATURE)
"""What a file may have without anybody naming it."""
QUEUE_FIELDS = (*LABEL_FIELDS, "prompt", "references", "response", "urgent")

_WHOLE_NUMBER = re.compile(r"[0-9]{1,10}", re.ASCII)


LabelFileError = TableError
"""A label file cannot be read; the message says where and what to do."""


class LabelReader:
    """Iterates over the labels of one table, row by row; memory does not grow with the file.

    The table is an open file, or `exported` by a labelling tool. `now`, with zone, is the
    `labelled_at` of rows that have none. `gate`, `kind`, `labeller` are for rows that do not say; a
    row that says otherwise is an error, but the labeller of an export. `defaults` are asked for the
    labeller, or the kind, of rows that do not say where the argument is None; rows may say
    otherwise. `columns` has the column of a field, where it does not have the field's name; also of
    `correct`, in place of `severity`. `reading` says what marks mean, and whether a score that says
    just what they say is taken in; its columns are not read. `answers` returns the answers by the
    ids of their tasks, for bridges whose exports have no more (`Bridge.by_task_id`).

    So far it has read `labels`, and passed over rows that are `unlabelled`, as their severity is
    empty, and labels that are `unmatched`, as the id of their task is of none of `answers`.

    Raises `UsageError` when `gate`, `kind` or `labeller` is not a valid one, and at the end where a
    score is the mark itself; `LabelFileError` while iterating, at the first row that is not a
    label. Rows before it have been yielded.
    """

    def __init__(
        self,
        table: Table,
        *,
        now: datetime,
        gate: str | None = None,
        kind: str | None = None,
        labeller: str | None = None,
        defaults: Mapping[str, Callable[[], str]] = MappingProxyType({}),
        columns: Mapping[str, str] = MappingProxyType({}),
        reading: Reading = AS_IT_IS,
        answers: Callable[[], Mapping[str, Mapping[str, object]]] | None = None,
    ) -> None:
        self.table = table
        self._answers = answers
        self._reading = reading
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
        self._defaults = defaults
        self._columns = self._found(columns)
        self.labels = 0
        self.unlabelled = 0
        self.unmatched = 0

    def _found(self, named: Mapping[str, str]) -> dict[str, str]:
        """Return the column of each field that has one."""
        table = self.table
        for field, column in named.items():
            if not table.has(column):
                raise UsageError(
                    f"{table.name} has no column {column!r} for {field}; it has {shown_columns([*table.columns, *table.inner])}"
                )
        # A column that has a field's name by chance gives way to the one that was named.
        taken = set(named.values())
        found = dict(named)
        for field, names in {
            **{one: (one,) for one in (*LABEL_FIELDS, *_UNSAID)},
            "correct": CORRECT,
            "score": SCORE,
        }.items():
            by_name = [
                column for column in table.columns if column.strip().lower() in names and column not in taken
            ]
            if len(by_name) > 1 and field in LABEL_FIELDS and field not in found:
                raise LabelFileError(table.name, 1, field, "the column occurs twice; remove one")
            if by_name:
                found.setdefault(field, by_name[0])
        if "severity" in found and "correct" in found:
            found.pop("severity" if "correct" in named and "severity" not in named else "correct")
        if not table.format.startswith("json"):
            given = {*self._given, *self._defaults}
            for field in _REQUIRED:
                if (
                    field not in found
                    and field not in given
                    and not (field == "severity" and ("correct" in found or "severities" in found))
                ):
                    raise self._missing(1, field)
        # A key may come first in a later object.
        late = {
            one: one
            for one in (*LABEL_FIELDS, *_UNSAID)
            if one != "severity" and table.format.startswith("json")
        }
        return late | found

    def __iter__(self) -> Iterator[LabelRevision]:
        check = ScoreCheck(self.table.name, self._columns.get("score"), trusted=self._reading.trust_score)
        for place, cells in self.table.rows:
            columns = dict(self._columns)
            fields = self._fields(place, value_at(cells, columns.pop("severities", "")))
            row = {field: self.table.cell(place, cells, field, column) for field, column in columns.items()}
            row["severities"] = fields
            row["severity"] = severity = self._severity(place, row)
            if severity is None and fields:
                row["severity"] = severity = max(fields.values())
            if severity is None:
                self.unlabelled += 1
                continue
            if self.table.unit == "record":
                if "labeller" in self._given:
                    row["labeller"] = None
                if self._answers is not None:
                    answer = self._answers().get(str(cells["task"]))
                    if answer is None:
                        self.unmatched += 1
                        continue
                    row |= answer
            label = self._label(place, row)
            check.see(number_in(row.get("score")), severity)
            self.labels += 1
            yield label_revision(label)
        check.check()

    def _severity(self, place: int, row: dict[str, object]) -> float | None:
        field = "severity" if "severity" in self._columns else "correct"
        try:
            return self._reading.marks.severity(
                row.pop(field, None), correct=field == "correct", decimal_comma=self.table.decimal_comma
            )
        except ValueError as error:
            raise self._error(place, field, str(error)) from None

    def _fields(self, place: int, value: object) -> dict[str, float]:
        """Read the severities of fields, which a cell has as JSON."""
        try:
            return msgspec.convert(
                msgspec.json.decode(value) if isinstance(value, str) and value else value or {},
                FieldSeverities,
            )
        except (msgspec.DecodeError, RecursionError) as error:
            problem = f'{one_line(str(error))}; it is a JSON object like {{"/total": 1}}'
            raise self._error(place, "severities", problem) from None

    def _missing(self, place: int, field: str) -> LabelFileError:
        otherwise = "" if field in self.table.columns else ", or name the tool that wrote it with --format"
        if field in _FROM_ARGUMENTS:
            otherwise = f", or give --{field}"
        return self._error(place, field, f"missing; add it to the file{otherwise}")

    def _error(self, place: int, field: str | None, problem: str) -> LabelFileError:
        return self.table.error(place, field, problem)

    def _label(self, line: int, row: Mapping[str, object]) -> LabelsV1:
        fields: dict[str, object] = {"schema": SCHEMA, "labelled_at": self._now, **self._given}
        for field in LABEL_FIELDS:
            stated = self._stated(line, field, row.get(field))
            if stated is None or stated == "":
                continue
            if field == "labeller" and isinstance(stated, str):
                stated = labeller_names.normalised(stated)
                if (wrong := labeller_names.fault(stated)) is not None:
                    raise self._error(line, field, f"{excerpt(stated)} {wrong}")
            if field in self._given and stated != self._given[field]:
                raise self._error(
                    line,
                    field,
                    f"the row says {excerpt(str(stated))} but the command says {excerpt(self._given[field])}; "
                    f"leave out --{field}, or correct the row",
                )
            fields[field] = stated
        fields |= {name: ask() for name, ask in self._defaults.items() if name not in fields}
        for field in _REQUIRED:
            if field not in fields:
                raise self._missing(line, field)
        fields |= {name: row[name] for name in ("severities", *_SIGNATURE) if row.get(name) not in (None, "")}
        if row.get("schema") not in (None, "", SCHEMA):
            raise self._error(line, "schema", f"must be {SCHEMA} or absent")
        try:
            event = msgspec.convert(fields, LabelsV1)
            check_label(event)
        except msgspec.ValidationError as error:
            column, problem = _explain(str(error), fields)
            raise self._error(line, column, problem) from None
        except BadMessage as bad:
            raise self._error(line, bad.detail.split(" ", 1)[0], bad.detail) from None
        return event

    def _stated(self, place: int, field: str, value: object) -> object:
        """A cell as the event has it: an id may be a number, and a number may be text."""
        if field in _IDENTIFIERS:
            try:
                return name_of(value) if self.table.format == "csv" else text_of(value)
            except NotText as error:
                raise self._error(place, field, f"{error} where a text should be") from None
        value = plain(value)
        if field != "attempt":
            return value
        if isinstance(value, str) and value:
            if not _WHOLE_NUMBER.fullmatch(value):
                raise self._error(place, field, f"{excerpt(value)} is not a whole number from 1")
            return int(value)
        return int(value) if isinstance(value, float) and value.is_integer() else value


def exported(bridge: Bridge, lines: Lines, name: str) -> Table:
    """Return the labels that a tool's export holds as a table of its records, numbered from 1.

    Raises `UsageError` when it is no export; while rows are read, `LabelFileError` at a record that
    is none.
    """
    try:
        records = bridge.records(msgspec.json.decode("".join(iter(lines.readline, ""))))
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{name} is not JSON ({one_line(str(error))}); in {bridge.title} {bridge.back}"
        ) from None
    if records is None or not all(isinstance(record, dict) for record in records):
        raise UsageError(f"{name} is no list of records; in {bridge.title} {bridge.back}")

    def rows() -> Iterator[tuple[int, dict[str, Any]]]:
        for number, record in enumerate(records, start=1):
            try:
                found = list(bridge.labels(record))
            except (ValueError, TypeError, AttributeError) as error:
                raise LabelFileError(
                    name, number, None, f"{error} (is this from {bridge.title}?)", unit="record"
                ) from None
            # A record that nobody has answered is a row without a severity.
            yield from ((number, row) for row in found or [{}])

    return Table.of(name, "jsonl", rows(), columns=LABEL_FIELDS, unit="record")


@contextmanager
def open_labels(
    path: Path,
    *,
    bridge: str | None = None,
    answers: Callable[[], Mapping[str, Mapping[str, object]]] = dict,
    report: Callable[[str], None] = lambda _text: None,
    **given: Any,
) -> Iterator[LabelReader]:
    """Open a label file, CSV, JSON Lines or Parquet, the first two also gzip; see `LabelReader`.

    `bridge` is the labelling tool that it is exported from, or the evaluation tool that wrote it,
    where the same file was published; None: as the columns tell. `report` is of `read_clouds`, for
    an evaluation tool's. Raises `UsageError` when it is no such file, or cannot be opened;
    `LabelFileError` while iterating.
    """
    if (evaluation := _evaluation(path, bridge, given.get("columns", {}))) is not None:
        rows = _labels_of_answers(path, evaluation, given, report)
        table = Table.of(path.name, "jsonl", rows, columns=LABEL_FIELDS, unit="record")
        yield LabelReader(table, **given | {"columns": {}, "reading": Reading()})
        return
    if bridge is None:
        with open_table(path, example=",".join(LABEL_FIELDS)) as table:
            yield LabelReader(table, **given)
        return
    tool = bridges()[bridge]
    with opened(path, str(path)) as raw:
        table = exported(tool, TextLines(raw, path.name), path.name)
        yield LabelReader(table, answers=answers if tool.by_task_id else None, **given)


def _evaluation(path: Path, named: str | None, columns: Mapping[str, str]) -> str | None:
    """The evaluation tool whose verdicts a file has, and no fields of labels: as named, or as its rows tell."""
    if named is not None and named not in bridges():
        return named
    if named in FORMATS or (named is None and "batch_id" not in columns):
        with suppress(UsageError), open_table(path, example=",".join(LABEL_FIELDS)) as table:
            if "batch_id" not in table.columns:
                known = ((name, one) for name, one in FORMATS.items() if named in (None, name))
                return next((name for name, one in known if one.tells(table.head)), None)
    return None


def _labels_of_answers(
    path: Path, tool: str, given: Mapping[str, Any], report: Callable[[str], None]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield what an evaluation tool says of answers, by the names that these have when they are published."""
    columns = {role: (name,) for role, name in given["columns"].items() if role in ("severity", "correct")}
    reading = replace(given["reading"], columns=columns, written_by=tool)
    clouds = read_clouds(path, reading, report=report)
    answers = ((cloud, one) for cloud in clouds for one in cloud.responses)
    for number, (cloud, one) in enumerate(answers, start=1):
        yield number, {"batch_id": cloud.batch_id, "response_id": one.id, "severity": one.severity}


def one_each(labels: Sequence[LabelRevision], annotators: Annotators) -> tuple[list[LabelRevision], str]:
    """Make one of the labels of one kind that one labeller gave one answer at one time, as of two people under one name.

    Signed ones stay as they were signed. Returns the labels, and a sentence where there were several; else it is empty.
    """
    found: dict[object, list[LabelRevision]] = {}
    for place, one in enumerate(labels):
        given = (one.key, one.response_id, one.kind, one.labeller, one.labelled_at)
        found.setdefault(place if one.signature is not None else given, []).append(one)
    several = [group for group in found.values() if len(group) > 1]
    made = [
        group[0]
        if len(group) == 1
        else replace(
            group[0],
            severity=severity_of([one.severity for one in group], annotators),
            severities=_fields_of(group, annotators),
        )
        for group in found.values()
    ]
    return made, several_note(len(several), len(made), sum(map(len, several)), annotators)


def _fields_of(labels: Sequence[LabelRevision], annotators: Annotators) -> tuple[tuple[str, float], ...]:
    given: dict[str, list[float]] = {}
    for name, severity in (one for label in labels for one in label.severities):
        given.setdefault(name, []).append(severity)
    return tuple((name, severity_of(given[name], annotators)) for name in sorted(given))


def format_of(path: Path) -> FileFormat:
    """Return the format in which a queue is written, by its file's name. Raises `UsageError` for any other."""
    found = format_by_name(path)
    if found is None or found == "parquet" or found == "json":
        raise UsageError(
            f"{path.name} is neither CSV (.csv, .tsv) nor JSON Lines (.jsonl, .ndjson); rename it"
        )
    return found


def write_queue(tasks: Iterable[LabelTask], lines: SupportsWrite[str], file_format: FileFormat | str) -> int:
    """Write the label queue for people to fill in; `LabelReader` reads it back.

    `lines` is opened with ``newline=""`` for CSV. `file_format` is ``csv``, ``jsonl`` or the name
    of a bridge (`streamer.labels.bridges`). Returns the number of rows written.
    """
    written = 0
    if file_format in bridges():
        return _write_tasks(tasks, lines, bridges()[file_format])
    table = CsvTable(lines, line_end="\r\n") if file_format == "csv" else None
    if table is not None:
        table.write(QUEUE_FIELDS)
    for task in tasks:
        references = None if task.references is None else list(task.references)
        row = dict.fromkeys(QUEUE_FIELDS) | identity(task)
        row |= {"prompt": task.prompt, "references": references, "response": task.shown}
        row["urgent"] = "yes" if task.urgent else ""
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


def _explain(problem: str, fields: Mapping[str, object]) -> tuple[str | None, str]:
    """Rephrase the decoder's sentence for people who fill in tables."""
    what, _, path = problem.partition(" - at `$.")
    column = path.rstrip("`") or None
    shown = excerpt(str(fields.get(column))) if column is not None else ""
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
