"""Files of answers, whatever their form: response clouds, or tables in CSV, JSON Lines or Parquet."""

from __future__ import annotations

import json
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from streamer.clouds.cloud import cloud_row, parse_cloud
from streamer.clouds.line_files import head_of, numbered_lines, shown_name
from streamer.clouds.tables.answers import AnswerReader, as_they_come, cloud_of, held_together, list_of_text
from streamer.clouds.tables.columns import Columns, names_answers, recognise
from streamer.clouds.tables.rows import FORMAT_NAMES, format_by_content, open_table
from streamer.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from streamer.clouds.cloud import Cloud
    from streamer.clouds.tables.answers import Answer
    from streamer.clouds.tables.columns import Role
    from streamer.clouds.tables.rows import Table

Content = Literal["clouds", "events", "table"]

EXAMPLE = "prompt,answer,severity"

_RESPONSES = re.compile(rb'"responses"\s*:\s*\[\s*\{')
_SIGN = re.compile(rb'"(question_id|batch_id|schema)"\s*:')


def content_of(path: Path | str) -> Content:
    """Return what a file holds, by its beginning. Raises `UsageError` when it is nothing that is read."""
    if format_by_content(path) != "jsonl":
        return "table"
    head = head_of(path)
    line = head.lstrip(b"\xef\xbb\xbf\r\n \t").split(b"\n", 1)[0]
    sign = _SIGN.search(line)
    if b'"streamer.responses' in line:
        return "events"
    if sign is None or not _RESPONSES.search(line):
        return "table"
    return "clouds" if sign[1] == b"question_id" else "events"


def read_clouds(
    path: Path | str,
    columns: Mapping[Role, tuple[str, ...]] | None = None,
    *,
    report: Callable[[str], None] = lambda _text: None,
    hold: bool = True,
    needs_answers: bool = False,
) -> Iterator[Cloud]:
    """Yield the clouds of a file one by one, in its order.

    Parameters
    ----------
    path : response clouds (``.jsonl``), or a table: ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet``; all but the last also
        gzip; ``-`` is standard input.
    columns : those of a table that are not recognised by name; see `streamer.clouds.tables.columns.parse_mapping`.
    report : receives a line about what was recognised in a table.
    hold : rows of one prompt may be anywhere, and all are in memory; False: one line or prompt is in memory at a time where
        the rows of a prompt are together.
    needs_answers : refuse a table that has scores only.

    Raises
    ------
    UsageError
        The file cannot be read, or a line is not as described; the message names the line and what to do.
    """
    content = content_of(path)
    if content == "events":
        raise UsageError(
            f"{shown_name(path)} holds events, which carry no severities; give response clouds or a table"
        )
    if content == "clouds":
        if columns:
            raise UsageError(
                f"{shown_name(path)} holds response clouds, whose fields have fixed names; --column is for tables"
            )
        yield from _cloud_lines(path)
        return
    with open_table(path, example=EXAMPLE) as table:
        yield from _table_clouds(path, table, columns or {}, report, hold=hold, needs_answers=needs_answers)


def read_rows(
    path: Path | str,
    columns: Mapping[Role, tuple[str, ...]] | None = None,
    *,
    report: Callable[[str], None] = lambda _text: None,
) -> Iterator[tuple[str, Cloud, dict[str, Any]]]:
    """Yield the clouds of a file with where each stands and its line as JSON values; see `read_clouds`.

    A question may occur twice in a file of clouds, which the caller looks at.
    """
    name = shown_name(path)
    if content_of(path) == "clouds" and not columns:
        for number, line in numbered_lines(path):
            where = f"{name}, line {number}"
            yield where, parse_cloud(line, where), json.loads(line)
        return
    for cloud in read_clouds(path, columns, report=report, hold=False, needs_answers=True):
        yield f"{name}, prompt {cloud.question_id[:60]!r}", cloud, cloud_row(cloud)


def _cloud_lines(path: Path | str) -> Iterator[Cloud]:
    name = shown_name(path)
    first_seen: dict[str, int] = {}
    for number, line in numbered_lines(path):
        cloud = parse_cloud(line, f"{name}, line {number}")
        earlier = first_seen.setdefault(cloud.batch_id, number)
        if earlier != number:
            raise UsageError(
                f"{name}, line {number}: question_id {cloud.question_id!r} was already on line {earlier}; "
                "a question is one batch, so put all its responses on one line or give each line its own id"
            )
        yield cloud
    if not first_seen:
        raise UsageError(f"{name} holds no clouds; it should have one JSON object a line")


def _table_clouds(
    path: Path | str,
    table: Table,
    given: Mapping[Role, tuple[str, ...]],
    report: Callable[[str], None],
    *,
    hold: bool,
    needs_answers: bool,
) -> Iterator[Cloud]:
    rows = iter(table.rows)
    first = next(rows, None)
    columns = recognise(
        table.header,
        given,
        name=table.name,
        holding_lists=() if first is None else lists_of(first[1], given),
        needs_answers=needs_answers,
    )
    if first is None:
        raise UsageError(f"{table.name} has a first line that names columns, and no rows")
    report(f"{table.name}: {FORMAT_NAMES[table.format]}, {columns.words}")
    reader = AnswerReader(table, columns, severity_was_named="severity" in given)

    def answers() -> Iterator[Answer]:
        assert first is not None
        yield from reader.answers(*first)
        for place, row in rows:
            yield from reader.answers(place, row)

    def apart(answer: Answer, earlier: int) -> UsageError:
        what = "was there already; a row is a whole prompt" if columns.wide else "began before"
        return table.error(
            answer.place,
            columns.one("prompt_id") or columns.one("prompt"),
            f"the prompt {answer.key[:60]!r} {what} (at {table.unit} {earlier}); "
            + ("give each row an id of its own" if columns.wide else "sort the rows by it"),
        )

    together = columns.wide or (not hold and (str(path) == "-" or _together(path, columns)))
    groups = as_they_come(answers(), apart) if together else held_together(answers())
    if columns.wide:
        groups = _one_row_each(groups, apart)
    names: dict[str, str] = {}
    for group in groups:
        cloud = cloud_of(group, table, columns)
        if names.setdefault(cloud.batch_id, group[0].key) != group[0].key:
            raise table.error(group[0].place, None, "its prompt has the same name as another in events")
        yield cloud


def _one_row_each(
    groups: Iterator[list[Answer]], apart: Callable[[Answer, int], UsageError]
) -> Iterator[list[Answer]]:
    for group in groups:
        if group[-1].place != group[0].place:
            raise apart(group[-1], group[0].place)
        yield group


def lists_of(
    row: Mapping[str, Any], given: Mapping[Role, tuple[str, ...]] = MappingProxyType({})
) -> frozenset[str]:
    """Return the columns that hold a list in a row.

    A text that could be a list, as cells of CSV are, counts as one, but in a column of answers that nobody named: an answer
    may look like a list.
    """
    named = {column for names in given.values() for column in names}

    def holds_list(column: str, value: Any) -> bool:
        if isinstance(value, str):
            may_be = column in named or not names_answers(column)
            return may_be and value.lstrip().startswith("[") and list_of_text(value) is not None
        return isinstance(value, list | tuple) or getattr(value, "ndim", 0) > 0

    return frozenset(column for column, value in row.items() if holds_list(column, value))


def _together(path: Path | str, columns: Columns) -> bool:
    """Look through a file once for rows of one prompt that stand apart."""
    seen: set[str] = set()
    last: str | None = None
    with open_table(path, example=EXAMPLE) as table:
        reader = AnswerReader(table, columns)
        for place, row in table.rows:
            key = reader.key(place, row)
            if key != last and key in seen:
                return False
            seen.add(key)
            last = key
    return True
