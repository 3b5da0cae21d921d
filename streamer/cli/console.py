"""What the commands print: results on standard output, everything else on standard error.

Names, texts and errors come from other people: whatever of them could steer a terminal is shown as `visible` writes it,
and nothing of them is read as markup.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import typer

from streamer.security.visible import visible
from streamer.wording.numbers import counted as counted
from streamer.wording.numbers import percent as percent

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

_PIPED_WIDTH = 160


class _Lines:
    """Whether standard error is a log of JSON lines: then what is said there is a log line too."""

    logged = False


def log_lines(logged: bool) -> None:
    """Write what follows on standard error as log lines, or for people."""
    _Lines.logged = logged


def lines_are_logged() -> bool:
    """Report whether standard error is a log of JSON lines."""
    return _Lines.logged


def complain(text: str) -> None:
    """Print one red line on standard error: what is wrong, and what to do."""
    text = " ".join(text.split())
    if not _logged("critical", text):
        typer.secho(f"streamer: {visible(text)}", fg=typer.colors.RED, err=True)


def warn(text: str) -> None:
    """Print one yellow line on standard error."""
    if not _logged("warning", text):
        typer.secho(visible(text), fg=typer.colors.YELLOW, err=True)


def note(text: str) -> None:
    """Print one line on standard error, beside the result."""
    if not _logged("info", text):
        typer.echo(visible(text), err=True)


def _logged(level: str, text: str) -> bool:
    if _Lines.logged:
        import structlog

        structlog.get_logger("streamer.cli").log(getattr(logging, level.upper()), "cli.message", message=text)
    return _Lines.logged


def say(text: str) -> None:
    """Print one line of the result."""
    typer.echo(visible(text))


def picked(one: object, names: str) -> dict[str, Any]:
    """Return the attributes of these names, separated by spaces, for JSON."""
    return {name: getattr(one, name) for name in names.split()}


def print_json(value: object) -> None:
    """Print one JSON value on a line of its own; times as RFC 3339."""
    typer.echo(visible(json.dumps(value, ensure_ascii=False, default=_plain, allow_nan=False)))


def tell(json: bool, value: object, *said: str) -> None:
    """Print a result: with --json its value, else what is said of it."""
    if json:
        print_json(value)
    for text in () if json else said:
        say(text)


def output() -> Console:
    """Return the console of standard output; a pipe is wide, so that no line of a table breaks in two."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPED_WIDTH
    console: Console = _console()(width=width, highlight=False, soft_wrap=False, markup=False)
    return console


def errors() -> Console:
    """Return the console of standard error."""
    console: Console = _console()(stderr=True, highlight=False, markup=False)
    return console


@cache
def _console() -> type[Console]:
    """Rich's console, but that texts cannot bring escape sequences of their own."""
    from rich.console import Console
    from rich.segment import Segment

    class VisibleConsole(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(visible(segment.text), segment.style)

    return VisibleConsole


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None
) -> None:
    """Print a table of plain texts; columns of numbers are right-aligned, None is a dash,
    `rich.text.Text` keeps its style.

    Columns give way where the console is narrow, and break between words alone: what still does not
    fit is wider than it.
    """
    from rich.table import Table
    from rich.text import Text

    console = output()
    cells = [[cell if isinstance(cell, Text) else Text(shown(cell)) for cell in row] for row in rows]
    widths, gap = _column_widths(
        [list(column) for column in zip(map(Text, columns), *cells, strict=True)], console.width
    )
    numeric = [
        bool(rows) and all(isinstance(row[i], int | float | None) for row in rows)
        for i in range(len(columns))
    ]
    table = Table(
        title=None if title is None else Text(title),
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, gap, 0, 0),
    )
    for i, column in enumerate(columns):
        table.add_column(
            Text(column),
            justify="right" if numeric[i] else "left",
            header_style="bold",
            overflow="fold",
            width=widths[i],
        )
    for row in cells:
        table.add_row(*row)
    console.width = max(console.width, sum(widths) + gap * len(widths))
    console.print(table)


def _column_widths(columns: Sequence[Sequence[Text]], width: int) -> tuple[list[int], int]:
    """Return how wide columns are, and the gap between them: the widest give way first, none below its longest word."""
    from rich.cells import cell_len

    texts = [[cell.plain for cell in column] for column in columns]
    widths = [max(cell_len(line) for text in column for line in text.split("\n")) for column in texts]
    least = [max(cell_len(word) for text in column for word in ["", *text.split()]) for column in texts]

    def fits(some: list[int], gap: int) -> bool:
        return sum(some) + gap * len(some) <= width

    # The gap gives way where that saves a break, of lines or of words.
    gap = 1 if not fits(widths, 2) and (fits(widths, 1) or not fits(least, 2)) else 2
    while not fits(widths, gap):
        wider = [i for i, most in enumerate(widths) if most > least[i]]
        if not wider:
            break
        widths[max(wider, key=widths.__getitem__)] -= 1
    return widths, gap


def print_list(
    json: bool,
    found: Sequence[Any],
    columns: Sequence[str],
    row: Callable[[Any], Sequence[object]],
    *,
    none: str,
    to_json: Callable[[Any], object],
) -> None:
    """Print a table with a row for each, or a JSON value for each; `none` is said where there is none."""
    if json:
        for one in found:
            print_json(to_json(one))
    elif found:
        print_table(columns, [row(one) for one in found])
    else:
        note(none)


def print_fields(fields: Mapping[str, object] | Sequence[tuple[str, object]]) -> None:
    """Print names and values below one another; in a sequence a name may be there several times."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items() if isinstance(fields, Mapping) else fields:
        table.add_row(Text(name), value if isinstance(value, Text) else Text(shown(value)))
    output().print(table)


def shown(value: object) -> str:
    """Write one value for people: a dash for None, six significant digits, times to the second in UTC."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S") + ("Z" if value.tzinfo else "")
    return visible(str(value))


@contextmanager
def progress(text: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error, when that is a terminal; `total` None: unknown. Gives
    what to call with how much has been done in all.
    """
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=errors(),
        transient=True,
    ) as bar:
        task = bar.add_task(text, total=total)
        yield lambda done: bar.update(task, completed=done)


def _plain(value: Any) -> object:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (tuple, set, frozenset)):
        return list(value)
    return str(value)


class PatientInterrupt:
    """Ctrl-C stops at once, but not between `hold` and `release`: then at `release`. For the main
    thread; afterwards it does what it did before.

    `wanted` : whether it came, to be asked where a library may have swallowed the exception.
    """

    def __init__(self) -> None:
        self._held = False
        self.wanted = False

    def hold(self) -> None:
        """From here on Ctrl-C waits."""
        self._held = True

    def release(self) -> None:
        """Continue; raises `KeyboardInterrupt` when a stop was requested."""
        self._held = False
        if self.wanted:
            raise KeyboardInterrupt

    def __enter__(self) -> PatientInterrupt:
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _interrupt(self, *_: Any) -> None:
        self.wanted = True
        if not self._held:
            raise KeyboardInterrupt
