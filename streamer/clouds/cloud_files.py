"""Files of answers, whatever their form: response clouds, or tables in CSV, JSON Lines or Parquet."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from streamer.clouds.cloud import Cloud, cloud_row, comparable, parse_cloud
from streamer.clouds.line_files import head_of, numbered_lines, shown_name
from streamer.clouds.tables.answers import AnswerReader, Reading
from streamer.clouds.tables.columns import NO_SEVERITIES
from streamer.clouds.tables.leaks import LeakCheck
from streamer.clouds.tables.rows import FORMAT_NAMES, TableError, format_by_content, open_table
from streamer.errors import UsageError

Content = Literal["clouds", "events", "table"]

EXAMPLE = "prompt,answer,severity"
AS_IT_IS = Reading()
"""Everything is recognised by its name."""

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
    reading: Reading = AS_IT_IS,
    *,
    report: Callable[[str], None] = lambda _text: None,
    hold: bool = True,
    needs_answers: bool = False,
) -> Iterator[Cloud]:
    """Yield the clouds of a file one by one, in its order.

    `path` : response clouds (``.jsonl``), or a table: ``.csv``, ``.tsv``, ``.jsonl`` or
    ``.parquet``; all but the last also gzip; ``-`` is standard input. `report` gets a line about
    what was recognised in a table, and about what was made of it. Rows of one prompt may be
    anywhere, and all are in memory; without `hold` one line or prompt is, where the rows of a
    prompt are together. `needs_answers` refuses a table that has scores only.

    Raises `UsageError` when the file cannot be read, or a line is not as described; the message
    names the line and what to do.
    """
    content = content_of(path)
    if content == "events":
        raise UsageError(
            f"{shown_name(path)} holds events, which carry no severities; give response clouds or a table"
        )
    if content == "clouds":
        if any(reading.columns.values()):
            raise UsageError(
                f"{shown_name(path)} holds response clouds, whose fields have fixed names; --column is for tables"
            )
        yield from comparable(_cloud_lines(path, reading), lambda cloud: cloud, shown_name(path))
        return
    with open_table(path, example=EXAMPLE, written_by=reading.written_by) as table:
        reader = AnswerReader(table, reading, needs_answers=needs_answers)
        if not table.head:
            raise UsageError(f"{table.name} has a first line that names columns, and no rows")
        report(f"{table.name}: {FORMAT_NAMES[table.format]}{table.origin}, {reader.columns.words}")
        together = not hold and (str(path) == "-" or _stand_together(path, reading))
        for prompt in reader.prompts(together=together):
            yield prompt.cloud
        for note in reader.notes:
            report(note)


def read_rows(
    path: Path | str, reading: Reading = AS_IT_IS, *, report: Callable[[str], None] = lambda _text: None
) -> Iterator[tuple[str, Cloud, dict[str, Any]]]:
    """Yield the clouds of a file with where each stands and its line as JSON values; see `read_clouds`.

    A question may occur twice in a file of clouds, which the caller looks at.
    """
    name = shown_name(path)
    if content_of(path) == "clouds" and not reading.columns:
        for number, line in numbered_lines(path):
            where = f"{name}, line {number}"
            yield where, parse_cloud(line, where), json.loads(line)
        return
    for cloud in read_clouds(path, reading, report=report, hold=False, needs_answers=True):
        yield f"{name}, prompt {cloud.question_id[:60]!r}", cloud, cloud_row(cloud)


def _cloud_lines(path: Path | str, reading: Reading) -> Iterator[Cloud]:
    name = shown_name(path)
    first_seen: dict[str, int] = {}
    leak = LeakCheck(
        name, {signal: f"signals.{signal}" for signal in reading.signals}, trusted=reading.trust_score
    )
    for number, line in numbered_lines(path):
        cloud = parse_cloud(line, f"{name}, line {number}")
        earlier = first_seen.setdefault(cloud.batch_id, number)
        if earlier != number:
            raise UsageError(
                f"{name}, line {number}: question_id {cloud.question_id!r} was already on line {earlier}; "
                "a question is one batch, so put all its responses on one line or give each line its own id"
            )
        for response in cloud.responses:
            leak.see(response)
            for signal, (least, most) in reading.signals.items():
                if not least <= response.signals.get(signal, least) <= most:
                    raise UsageError(
                        f"{name}, line {number}: the signal {signal} is {response.signals[signal]!r}, and it is declared to be from "
                        f"{least:g} to {most:g}"
                    )
        yield cloud
    leak.check()
    if not first_seen:
        raise UsageError(f"{name} holds no clouds; it should have one JSON object a line")


def _stand_together(path: Path | str, reading: Reading) -> bool:
    """Look through a file once: whether the rows of each prompt stand together, and no score is the mark.

    For the latter severities are looked at even if nobody asked for them; one that cannot be read ends that look.
    """
    columns = {role: names for role, names in reading.columns.items() if names or role not in NO_SEVERITIES}
    seen: set[str] = set()
    last: str | None = None
    together = True
    with open_table(path, example=EXAMPLE, written_by=reading.written_by) as table:
        try:
            reader = AnswerReader(table, replace(reading, columns=columns))
            reader.unclear = ()  # a score that is the mark is one either way
        except UsageError:
            reader = AnswerReader(table, reading)
        check = reader.leak_check()
        legible = not check.trusted
        for place, row in table.rows:
            key = reader.key(place, row)
            together &= key == last or key not in seen
            seen.add(key)
            last = key
            if reader.has_failed(place, row):
                continue
            if legible:
                try:
                    for answer in reader.answers(place, row):
                        check.see(answer)
                except TableError:
                    legible = False
            elif not together:
                return False
    if legible:
        check.check()
    return together
