"""`streamer tail`: follow a topic, one line an event."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamer import wiring
from streamer.cli import options as opt
from streamer.cli.broker import require_broker
from streamer.cli.console import PatientInterrupt, note, say
from streamer.errors import UsageError
from streamer.events.receipts import receipt_line
from streamer.events.topic import every
from streamer.security.visible import visible

if TYPE_CHECKING:
    from streamer.stream.tail import TailedRecord

    Name = str
else:
    Name = Literal[tuple(every())]


def tail(
    topic: Annotated[Name, typer.Argument(help="What to follow.")] = "actions",
    from_beginning: bool = opt.flag(
        "--from-beginning", "Start with the oldest event instead of the next one."
    ),
    count: int | None = opt.option("N", "Stop after this many events.", min=1),
    timeout: str | None = opt.option("TIME", "Stop when no event came for this long: 5s, 1m."),
    json: bool = opt.flag("--json", "Print each event's value as it is, one a line."),
    receipts: bool = opt.flag(
        "--receipts",
        "Print, of each action or outcome at the desk, its receipt and the SHA-256 of its value: what `audit verify --receipts` reads.",
    ),
) -> None:
    """Follow a topic, one line an event, until Ctrl-C."""
    if receipts and (json or not every()[topic].has_receipts):
        raise UsageError(
            "only actions and what becomes of them at the desk have receipts: streamer tail actions --receipts, without --json"
        )
    settings = wiring.load_settings()
    require_broker(settings)
    name = wiring.topics(settings).of(every()[topic])
    seen, columns = 0, AlignedFields()
    # kafka-python swallows whatever is raised while it runs its tasks, Ctrl-C too.
    with PatientInterrupt() as interrupt:
        for record in wiring.tail(
            settings,
            name,
            from_beginning=from_beginning,
            timeout_seconds=None if timeout is None else opt.seconds(timeout, "--timeout"),
            stop=lambda: interrupt.wanted,
        ):
            if receipts:
                kept = receipt_line(record.value, record.headers)
                if kept is None:
                    note(f"no receipt at offset {record.offset}: the message brings none")
                    continue
                sys.stdout.buffer.write(kept + b"\n")
            elif json:
                value = (record.value or b"null").replace(b"\n", b" ")
                if sys.stdout.isatty():
                    value = visible(value.decode(errors="replace")).encode()
                sys.stdout.buffer.write(value + b"\n")
            else:
                say(line(topic, record, columns))
            sys.stdout.flush()
            seen += 1
            if seen == count:
                return
        if interrupt.wanted:
            raise KeyboardInterrupt
    if not seen:
        note(f"no event on {name} within {timeout}")


class AlignedFields:
    """Fields below one another, as wide as the widest so far: what comes later may be wider, what was printed stays."""

    def __init__(self) -> None:
        self._widths: dict[int, int] = {}

    def joined(self, fields: "Sequence[str]") -> str:
        """Write a line; the last field, and one that is very long, push nothing else aside later."""
        from rich.cells import cell_len, set_cell_size

        parts = []
        for position, field in enumerate(fields[:-1]):
            width = cell_len(field)
            wide = max(self._widths.get(position, 0), min(width, _WIDEST))
            self._widths[position] = wide
            parts.append(field if width > wide else set_cell_size(field, wide))
        return "  ".join([*parts, fields[-1]]).rstrip()


_WIDEST = 32


def line(topic: str, record: "TailedRecord", columns: AlignedFields | None = None) -> str:
    """Write one event as one line for people; what cannot be read is shown as such and never raises."""
    import json as json_codec

    columns = columns or AlignedFields()
    when = _time(record.timestamp_ms)
    shown = every()[topic]
    headers = {name: _text(value) for name, value in record.headers}
    try:
        event = None if shown.event is None else json_codec.loads(record.value or b"null")
        fields = [
            "".join(c if c.isprintable() else " " for c in field) for field in shown.line(event, headers)
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{when}  not readable: {len(record.value or b'')} bytes at offset {record.offset}"
    return columns.joined([when, *fields])


def _time(timestamp_ms: int) -> str:
    # Only the time of day: a publisher may date a record past the year 9999.
    return datetime.fromtimestamp(timestamp_ms % 86_400_000 / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "replace")
