"""The rows of a table, each with its place in the file; all but those of JSON one in memory at a time.

What a file is, its content says; its name has to agree, so that a file under a wrong name is named and not guessed at.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Literal, Protocol

import msgspec

from streamer.clouds.line_files import head_of, numbered_lines, opened, shown_name
from streamer.clouds.tables.formats import rows_of
from streamer.clouds.tables.values import inner_names, is_nested, plain, value_at
from streamer.errors import BadMessage, UsageError
from streamer.events.codec import malformed
from streamer.events.excerpts import excerpt, one_line
from streamer.events.json_structure import check_structure
from streamer.extras import needed_by

TableFormat = Literal["csv", "jsonl", "json", "parquet"]

FORMAT_NAMES: dict[TableFormat, str] = {
    "csv": "CSV",
    "jsonl": "JSON Lines",
    "json": "JSON",
    "parquet": "Parquet",
}
SUFFIXES: dict[str, TableFormat] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
"""What a file's name says, before ``.gz``."""

MAX_LINE_CHARACTERS = 4 * 1024 * 1024
"""Longest line and longest cell of CSV that is read: more than any event can hold."""
MAX_DOCUMENT_BYTES = 512 * 2**20
"""Longest file of JSON that is read, all of it at once."""

_MAX_LINE_DEPTH = 64
_DELIMITERS = ",;\t|"
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_SEPARATOR = re.compile(r"sep=([,;\t|])")
"""What Excel understands in the first line of CSV, and writes there."""
_QUOTED = re.compile(r'"(?:[^"]|"")*"?')
_PARQUET_ROWS = 1000
_ROWS_AHEAD = 50
"""Rows in which columns are looked for."""
_PARQUET_MAGIC = b"PAR1"

_OTHER_KINDS: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "an Excel workbook or another archive; save the sheet as CSV UTF-8"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook; save the sheet as CSV UTF-8"),
    (b"SQLite format 3", "a SQLite database; export the table as CSV"),
    (b"BZh", "compressed by bzip2; unpack it, or compress it by gzip"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd; unpack it, or compress it by gzip"),
    (b"\xff\xfe", "UTF-16; save it as UTF-8 (in Excel: CSV UTF-8)"),
    (b"\xfe\xff", "UTF-16; save it as UTF-8 (in Excel: CSV UTF-8)"),
    (b"%PDF", "a PDF; export the table as CSV"),
    (b"<", "HTML or XML; export the table as CSV"),
)


class TableError(UsageError):
    """A row of a table cannot be read; the message says where and what to do.

    `line` is where the row begins: the line, from 1; of Parquet the row, from 1. `column` is the
    one to blame, if one is.
    """

    def __init__(self, file: str, line: int, column: str | None, problem: str, *, unit: str = "line") -> None:
        where = f"{file}, {unit} {line}" + (f", column {column}" if column else "")
        super().__init__(f"{where}: {problem}")
        self.file = file
        self.line = line
        self.column = column


class UnclearMarks(TableError):
    """Marks that may mean right or wrong, in `columns` whose names do not say which."""

    columns: tuple[str, ...] = ()


class Lines(Protocol):
    """Lines of text: an open file, or `TextLines`."""

    def readline(self, limit: int = -1, /) -> str:
        """Return the next line with its end, at most `limit` characters of it; empty at the end."""
        ...


class TextLines:
    """The lines of a file, plain or gzip, as text; a byte order mark at its beginning is passed over.

    Raises `TableError` at a line that is not UTF-8.
    """

    def __init__(self, raw: IO[bytes], name: str) -> None:
        self._raw = raw
        self._name = name
        self._number = 0

    def readline(self, limit: int = -1, /) -> str:
        """Return the next line; see `Lines`."""
        # A character has at most four bytes, so that what has too many characters is still seen to have them.
        line = self._raw.readline(4 * limit if limit > 0 else -1)
        self._number += 1
        if self._number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        return decoded(line, self._name, self._number)


def decoded(line: bytes, name: str, number: int) -> str:
    """Decode a line. Raises `TableError` when it is not UTF-8."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        found = line[error.start : error.start + 1]
        likely = found.decode("cp1252", "ignore")
        seen = f", which is {likely!r} in Windows-1252" if likely.isprintable() and likely else ""
        raise TableError(
            name,
            number,
            None,
            f"not UTF-8 (byte 0x{found.hex()}{seen}); save it as UTF-8 (in Excel: CSV UTF-8), or convert it: "
            "iconv -f WINDOWS-1252 -t UTF-8",
        ) from None
    if "\0" in text:
        raise TableError(
            name,
            number,
            None,
            "it holds a NUL, which no text has; is this UTF-16 or a binary file? Save it as UTF-8",
        )
    return text


class CsvRows:
    """The rows of CSV: comma, semicolon, tab or vertical bar, whichever the first line has most of.

    `example` has column names that an error shows where there are none. Raises `TableError` at once
    where there is no header, and while iterating at the first row that is not one.
    """

    def __init__(self, lines: Lines, name: str, example: str) -> None:
        first, number = lines.readline(MAX_LINE_CHARACTERS), 1
        named = _SEPARATOR.fullmatch(first.strip())
        if named is not None:
            first, number = lines.readline(MAX_LINE_CHARACTERS), 2
        if "\r" in first.rstrip("\r\n") and "\n" not in first:
            raise TableError(name, 1, None, "lines end in carriage returns alone; save it with line feeds")
        if not first.strip():
            raise TableError(name, 1, None, f"the first line must name the columns: {example}")
        outside = _QUOTED.sub("", first)
        self.delimiter = max(_DELIMITERS, key=outside.count) if named is None else named[1]
        self._before = number - 1
        # The limit belongs to the csv module as a whole; it is only ever raised.
        csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_CHARACTERS))
        self._name = name
        # A quoted name of a column may go on in the next line.
        self._table = csv.reader(
            chain([first], bounded(lines, name, first=number + 1)), delimiter=self.delimiter, strict=True
        )
        try:
            self.header = [column.strip() for column in next(self._table)]
        except csv.Error as error:
            raise TableError(
                name, 1, None, f"not CSV ({error}); check the quotes of the first line"
            ) from None

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        """Yield each row that is not empty with the number of the line at which it begins."""
        width = len(self.header)
        begins = self._before + self._table.line_num + 1
        while True:
            try:
                cells = next(self._table, None)
            except csv.Error as error:
                raise TableError(
                    self._name, begins, None, f"not CSV ({error}); check the quotes of this row"
                ) from None
            if cells is None:
                return
            if any(cell.strip() for cell in cells):
                if len(cells) != width:
                    raise TableError(
                        self._name,
                        begins,
                        None,
                        f"the row has {len(cells)} cells but the first line names {width} columns; "
                        "put a cell that holds a separator into double quotes",
                    )
                yield begins, cells
            begins = self._before + self._table.line_num + 1


def bounded(lines: Lines, name: str, first: int = 1) -> Iterator[str]:
    """Yield lines. Raises `TableError` at one that is longer than any row may be; `first` is the first one's number."""
    number = first
    while text := lines.readline(MAX_LINE_CHARACTERS + 1):
        if len(text) > MAX_LINE_CHARACTERS:
            raise TableError(
                name,
                number,
                None,
                f"longer than {MAX_LINE_CHARACTERS} characters; is a quote missing, or is this no table?",
            )
        yield text
        number += 1


def json_object(encoded: bytes, name: str, line: int) -> dict[str, Any]:
    """Read one line of JSON Lines. Raises `TableError` when it is no object."""
    row = _json(encoded, name, line, "write one object per line")
    if not isinstance(row, dict):
        raise TableError(name, line, None, "not a JSON object; write one object per line")
    return row


def json_entries(path: Path | str, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the entries of a JSON array with their places from 1, or the one object that a file is.

    Raises `TableError` when it is neither, or longer than `MAX_DOCUMENT_BYTES`.
    """
    with opened(path, name) as stream:
        whole = stream.read(MAX_DOCUMENT_BYTES + 1).removeprefix(b"\xef\xbb\xbf")
    advice = f"write one JSON array of objects, or one object a line: jq -c . {Path(name).name}"
    if len(whole) > MAX_DOCUMENT_BYTES:
        raise TableError(name, 1, None, f"longer than {MAX_DOCUMENT_BYTES // 2**20} MiB; {advice}")
    found = _json(whole, name, 1, advice)
    for number, entry in enumerate(found if isinstance(found, list) else [found], start=1):
        if not isinstance(entry, dict):
            raise TableError(name, number, None, f"not a JSON object; {advice}", unit="entry")
        yield number, entry


def _json(encoded: bytes, name: str, line: int, advice: str) -> Any:
    try:
        found = msgspec.json.decode(encoded)
        check_structure(encoded, _MAX_LINE_DEPTH)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TableError(name, line, None, f"{malformed(encoded, str(error)).detail}; {advice}") from None
    except BadMessage as bad:
        raise TableError(name, line, None, bad.detail) from None
    return found


def parquet_rows(path: Path | str) -> tuple[list[str], Iterator[tuple[int, dict[str, Any]]]]:
    """Return the columns of a Parquet file, and its rows, numbered from 1, read in portions.

    Raises `UsageError` when the file is damaged, or pyarrow is not installed: the message names the
    extra.
    """
    name = shown_name(path)
    with needed_by(f"reading {Path(path).name}", "parquet"):
        import pyarrow
        from pyarrow import parquet

    try:
        file = parquet.ParquetFile(Path(path))
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(
            f"{name} is a damaged Parquet file ({one_line(str(error))}); copy it again"
        ) from None

    def rows() -> Iterator[tuple[int, dict[str, Any]]]:
        number = 0
        with file:
            try:
                for batch in file.iter_batches(_PARQUET_ROWS):
                    for row in batch.to_pylist():
                        number += 1
                        yield number, row
            except (pyarrow.ArrowException, OSError) as error:
                raise TableError(
                    name,
                    number + 1,
                    None,
                    f"damaged ({one_line(str(error))}); copy the file again",
                    unit="row",
                ) from None

    return list(file.schema_arrow.names), rows()


@dataclass(frozen=True, slots=True)
class Table:
    """An open table.

    `columns` are the names; of JSON Lines the keys of the first objects. `inner` are dotted names
    of what is nested in them, by the first rows; see `streamer.clouds.tables.values.value_at`.
    `rows` have their places, the first ones too, which are in `head`. `unit` is what the place
    counts: ``line``, ``row``, ``entry`` of JSON, or ``record`` of an export. `origin` is the tool
    that wrote it, as far as that was seen, in words that follow those for the format.
    `decimal_comma` : a number may have a comma, since cells are not separated by commas.
    """

    name: str
    format: TableFormat
    columns: Sequence[str]
    inner: Sequence[str]
    head: Sequence[Mapping[str, Any]]
    rows: Iterator[tuple[int, Mapping[str, Any]]]
    unit: str = "line"
    decimal_comma: bool = False
    origin: str = ""

    @classmethod
    def of(
        cls,
        name: str,
        kind: TableFormat,
        rows: Iterator[tuple[int, Mapping[str, Any]]],
        *,
        columns: Sequence[str] | None = None,
        ahead: int = _ROWS_AHEAD,
        unit: str = "line",
        decimal_comma: bool = False,
        origin: str = "",
    ) -> Table:
        """Make one of its rows, of which `ahead` are looked at for columns; `columns` : where they are known."""
        first = list(islice(rows, ahead))
        head = [row for _, row in first]
        if columns is None:
            columns = list(dict.fromkeys(str(key) for row in head for key in row))
        inner = dict.fromkeys(name for row in head for name in inner_names(row, columns))
        return cls(
            name, kind, columns, [one for one in inner if one not in columns], head, chain(first, rows), unit, decimal_comma,
            origin,
        )  # fmt: skip

    def error(self, place: int, column: str | None, problem: str) -> TableError:
        """Return the error of a row."""
        return TableError(self.name, place, column, problem, unit=self.unit)

    def has(self, column: str) -> bool:
        """Whether there is a column of that name, or a value of that dotted name in one of the first rows."""
        return column in self.columns or any(value_at(row, column) is not None for row in self.head)

    def cell(
        self, place: int, row: Mapping[str, Any], role: str, column: str, *, as_text: bool = False
    ) -> Any:
        """Return what a row has in a column, or within one; see `streamer.clouds.tables.values`.

        `role` is what the cell is for; `as_text` : an object that is written as text is one. Raises
        `TableError` for an object or a list of objects, with the columns that could be named.
        """
        value = value_at(row, column)
        if is_nested(value, as_text=as_text):
            inside = inner_names(row, [column], opened=True)
            an = "a list of objects" if isinstance(plain(value), list) else "an object"
            problem = f"{an} where one value should be"
            if {f"{column}.role", f"{column}.content"} <= {*inside}:
                problem += (
                    f"; name a message, as the user's last: --column {role}={column}.role=user.-1.content"
                )
            elif inside:
                entry = (
                    f", or of one entry {inside[0].replace(column, f'{column}.0', 1)}"
                    if an.startswith("a l")
                    else ""
                )
                problem += f"; name what is in it: --column {role}={inside[0]}{entry} (it has {', '.join(inside[:12])})"
            raise self.error(place, column, problem)
        return value


def format_by_content(path: Path | str) -> TableFormat:
    """Return what a file is, by its first bytes and its name. Raises `UsageError` when it is empty,
    something else, or not what its name says.
    """
    name = shown_name(path)
    head = head_of(path)
    if not head.strip():
        raise UsageError(f"{name} is empty")
    if head.startswith(_PARQUET_MAGIC):
        if str(path) == "-":
            raise UsageError("Parquet is not read from standard input: name the file")
        return "parquet"
    for magic, what in _OTHER_KINDS:
        if head.startswith(magic):
            raise UsageError(f"{name} is {what}")
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    by_name = format_by_name(path)
    if by_name == "parquet":
        raise UsageError(f"{name} is no Parquet file, or its beginning is missing; copy it again")
    if start.startswith((b"[", b"{")):
        if by_name == "csv":
            raise UsageError(f"{name} is named like CSV, but its first line is JSON; name it .jsonl")
        over_lines = b"\n" in start and start.split(b"\n", 1)[0].strip() == b"{"
        return "json" if start.startswith(b"[") or over_lines else "jsonl"
    line = start.split(b"\n", 1)[0]
    if _NO_TEXT.search(line):
        raise UsageError(f"{name} holds no text: is it compressed, or a file of another kind?")
    if by_name == "jsonl":
        first = line.decode("utf-8", "replace").strip()
        if any(sign in first for sign in _DELIMITERS):
            raise UsageError(
                f"{name} is named like JSON Lines, but its first line is not JSON; it looks like CSV ({excerpt(first)}): "
                "name it .csv"
            )
        raise UsageError(
            f"{name}, line 1 is not JSON ({excerpt(first)}); write one JSON object a line, in UTF-8"
        )
    return "csv"


def format_by_name(path: Path | str) -> TableFormat | None:
    """Return what a file's name says it is; None if nothing."""
    named = Path(path)
    suffix = named.with_suffix("").suffix if named.suffix == ".gz" else named.suffix
    return SUFFIXES.get(suffix.lower())


@contextmanager
def open_table(path: Path | str, *, example: str, written_by: str | None = None) -> Iterator[Table]:
    """Open the table of a file: CSV, JSON Lines, JSON or Parquet, all but the last plain or gzip;
    ``-`` is standard input.

    `example` has column names that an error shows where there are none; `written_by` is the tool,
    None: as the rows tell (`streamer.clouds.tables.formats`). Raises `UsageError` when it is none
    of these, and `TableError` at the first row that is not one.
    """
    name = shown_name(path)
    kind = format_by_content(path)
    # What comes slowly is not waited for.
    ahead = 1 if str(path) == "-" else _ROWS_AHEAD
    if kind == "parquet":
        header, rows = parquet_rows(path)
        yield Table.of(name, kind, rows, columns=header, unit="row")
    elif kind != "csv":
        lines = ((number, json_object(line, name, number)) for number, line in numbered_lines(path))
        objects = json_entries(path, name) if kind == "json" else lines
        origin, found, counted = rows_of(objects, written_by, at_once=str(path) != "-")
        unit = "entry" if counted or kind == "json" else "line"
        table = Table.of(name, kind, found, ahead=ahead, unit=unit, origin=origin)
        if not table.head:
            raise UsageError(f"{name} is empty")
        yield table
    else:
        with opened(path, name) as raw:
            csv_rows = CsvRows(TextLines(raw, name), name, example)
            cells = ((line, dict(zip(csv_rows.header, row, strict=True))) for line, row in csv_rows)
            comma = csv_rows.delimiter != ","
            yield Table.of(name, kind, cells, columns=csv_rows.header, ahead=ahead, decimal_comma=comma)
