"""`streamer tail`: follow a topic, one line an event."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamer.cli import options as opt
from streamer.wording.numbers import HELD_WORDS, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamer.stream.tail import TailedRecord


class Stream(StrEnum):
    """The topics that one may follow."""

    ACTIONS = "actions"
    DESK = "desk"
    THRESHOLDS = "thresholds"
    ALERTS = "alerts"
    DEAD_LETTERS = "dead-letters"
    RESPONSES = "responses"
    LABELS = "labels"


def tail(
    topic: Annotated[Stream, typer.Argument(help="What to follow.")] = Stream.ACTIONS,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start with the oldest event instead of the next one.")
    ] = False,
    count: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Stop after this many events.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop when no event came for this long: 5s, 1m.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print each event's value as it is, one a line.")
    ] = False,
    receipts: Annotated[
        bool,
        typer.Option(
            "--receipts",
            help="Print, of each action or outcome at the desk, its receipt and the SHA-256 of its value: what `audit verify --receipts` reads.",
        ),
    ] = False,
) -> None:
    """Follow a topic, one line an event, until Ctrl-C."""
    import sys

    from streamer import wiring
    from streamer.cli.console import note, say
    from streamer.cli.interrupts import PatientInterrupt
    from streamer.cli.reachability import require_broker
    from streamer.errors import UsageError
    from streamer.events.receipts import receipt_line
    from streamer.security.visible import visible
    from streamer.settings.settings import load_settings

    if receipts and (json or topic not in (Stream.ACTIONS, Stream.DESK)):
        raise UsageError(
            "only actions and what becomes of them at the desk have receipts: streamer tail actions --receipts, without --json"
        )
    settings = load_settings()
    require_broker(settings)
    name = getattr(wiring.topics(settings), topic.name.lower())
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
                    note(f"no receipt at offset {record.offset}: a worker of an earlier version published it")
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


def line(topic: Stream, record: "TailedRecord", columns: AlignedFields | None = None) -> str:
    """Write one event as one line for people; what cannot be read is shown as such and never raises."""
    import json as json_codec

    columns = columns or AlignedFields()
    when = _time(record.timestamp_ms)
    if topic is Stream.DEAD_LETTERS:
        headers = dict(record.headers)
        code = _text(headers.get("streamer_error_code")) or "unknown"
        source = "/".join(
            _text(headers.get(f"__connect.errors.{part}")) for part in ("topic", "partition", "offset")
        )
        why = _text(headers.get("__connect.errors.exception.message"))
        return columns.joined([when, *map(_one_line, (code, source, why))])
    try:
        event = json_codec.loads(record.value or b"null")
        fields = [_one_line(field) for field in _LINES[topic](event)]
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{when}  not readable: {len(record.value or b'')} bytes at offset {record.offset}"
    return columns.joined([when, *fields])


def _action(event: dict[str, Any]) -> list[str]:
    scores = [r["score"] for r in event["responses"] if r.get("score") is not None]
    best = f"best {max(scores):.3f}" if scores else "no score"
    policy = event["policy"]
    chosen = f" {event['selected']}" if event.get("selected") else ""
    marks = [
        *([] if event["enforced"] else ["shadow"]),
        *(["to label"] if event["audit"]["sampled"] else []),
    ]
    return [
        event["gate"], _batch(event), HELD_WORDS.get(event["action"], event["action"]) + chosen, event["reason"], best, f"({_bound(policy)})",
        f"v{policy['version']}", ", ".join(marks),
    ]  # fmt: skip


def _desk(event: dict[str, Any]) -> list[str]:
    chosen = f" {event['selected']}{' edited' if event['edited'] else ''}" if event.get("selected") else ""
    who = event["by"] or "nobody by the deadline"
    remark = f": {event['remark']}" if event["remark"] else ""
    return [event["gate"], _batch(event), event["action"] + chosen, f"by {who}{remark}"]


def _threshold(event: dict[str, Any]) -> list[str]:
    from streamer.clouds.sentence import budget

    return [
        event["gate"], f"v{event['version']}", _bound(event), f"budget {budget(event['alpha'])}", event["method"],
        event["unit"],
    ]  # fmt: skip


def _alert(event: dict[str, Any]) -> list[str]:
    return [event["gate"], event["level"], event["kind"], event["alert_id"][:8], event["message"]]


def _responses(event: dict[str, Any]) -> list[str]:
    return [event["gate"], _batch(event), counted(len(event["responses"]), "response", "responses")]


def _label(event: dict[str, Any]) -> list[str]:
    return [
        event["gate"], _batch(event), event["response_id"], f"{event['kind']} {event['severity']:g}",
        f"by {event['labeller']}",
    ]  # fmt: skip


def _bound(policy: dict[str, Any]) -> str:
    """Write what a score is compared with as the other commands do; the state where there is nothing to compare with."""
    return f"Q > {policy['lambda']:.6g}" if policy.get("lambda") is not None else str(policy["state"])


_LINES = {
    Stream.ACTIONS: _action,
    Stream.DESK: _desk,
    Stream.THRESHOLDS: _threshold,
    Stream.ALERTS: _alert,
    Stream.RESPONSES: _responses,
    Stream.LABELS: _label,
}


def _batch(event: dict[str, Any]) -> str:
    attempt = f"#{event['attempt']}" if event.get("attempt", 1) != 1 else ""
    return f"{event['batch_id']}{attempt}"


def _time(timestamp_ms: int) -> str:
    from datetime import UTC, datetime

    # Only the time of day: a publisher may date a record past the year 9999.
    return datetime.fromtimestamp(timestamp_ms % 86_400_000 / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "replace")


def _one_line(text: str) -> str:
    """An event is other people's text: no line break or terminal control of it may reach the terminal."""
    return "".join(c if c.isprintable() else " " for c in text)
