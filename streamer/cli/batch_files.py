"""What `streamer publish` reads: files of events or of response clouds, checked line by line, as messages to send."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from streamer.clouds.cloud import cloud_labels, cloud_message
from streamer.clouds.cloud_files import AS_IT_IS, content_of, read_clouds
from streamer.clouds.line_files import numbered_lines, shown_name
from streamer.clouds.tables.answers import Reading
from streamer.clouds.tables.columns import NO_SEVERITIES
from streamer.clouds.tables.rows import json_object
from streamer.errors import BadMessage, UsageError
from streamer.events import codes
from streamer.events.labels import encode_label
from streamer.events.limits import Limits
from streamer.events.responses import decode_responses
from streamer.gates.setting import GATE_NAME, GATE_NAME_RULE


@dataclass(frozen=True, slots=True)
class Publication:
    """One batch to send, and the labels that go with it.

    Attributes
    ----------
    key : of all these messages, so that attempts and labels of one batch keep their order.
    value : the event, as the responses topic requires it.
    labels : events for the labels topic.
    """

    key: bytes
    value: bytes
    labels: tuple[bytes, ...] = ()


def publications(
    file: str,
    *,
    gate: str | None,
    labels: bool,
    labeller: str | None,
    limits: Limits,
    reading: Reading = AS_IT_IS,
    embeddings_of: str | None = None,
    report: Callable[[str], None] = lambda _text: None,
) -> Iterator[Publication]:
    """Iterate over what a file asks to publish, in its order, one line in memory at a time.

    Parameters
    ----------
    file : a path, or ``-`` for standard input; plain or gzip, detected by content.
    gate : needed for clouds and tables; replaces the gate of events when given.
    labels : take the severities of clouds and tables along.
    labeller : who gave them; ``file:NAME`` when None.
    limits : bounds on an event.
    reading, report : see `streamer.clouds.cloud_files.read_clouds`.
    embeddings_of : what made the embeddings of clouds and tables, which then go along; None: they do not.

    Raises
    ------
    UsageError : the file cannot be read, or a line is not fit to be published; the text names the line.
    """
    if gate is not None and GATE_NAME.fullmatch(gate) is None:
        raise UsageError(f"--gate {gate!r} is not a valid gate name: {GATE_NAME_RULE}")
    content = content_of(file)
    if content == "events":
        for option, given in (
            ("--labels", labels),
            ("--column", reading.columns),
            ("--signal", reading.signals),
            ("--embeddings-of", embeddings_of),
        ):
            if given:
                raise UsageError(
                    f"{_name(file)} holds events, which have their own fields and carry no labels; {option} is for "
                    "response clouds and tables"
                )
        yield from _events(file, gate, limits)
        return
    if gate is None:
        raise UsageError(f"{_name(file)} names no gate, as only events do; say which with --gate")
    at = datetime.now(UTC)
    who = labeller or f"file:{_name(file)}"[:200]
    if not labels and content == "table":  # what nobody asked for is not looked at
        reading = replace(reading, columns={**NO_SEVERITIES, **reading.columns})
    for cloud in read_clouds(file, reading, report=report, hold=False, needs_answers=True):
        if embeddings_of is not None and not cloud.embedded:
            raise UsageError(
                f"question {cloud.question_id!r} has no embeddings to send with --embeddings-of; a table has them in a "
                "column: --column embedding=NAME"
            )
        yield Publication(
            key=cloud.batch_id.encode(),
            value=cloud_message(cloud, gate, limits, embeddings_of=embeddings_of),
            labels=tuple(map(encode_label, cloud_labels(cloud, gate, who, at))) if labels else (),
        )


def _events(file: str, gate: str | None, limits: Limits) -> Iterator[Publication]:
    for number, line in numbered_lines(file):
        yield _event(line.strip(), gate, limits, _name(file), number)


def _event(line: bytes, gate: str | None, limits: Limits, name: str, number: int) -> Publication:
    where = f"{name}, line {number}"
    try:
        if gate is not None:
            line = json.dumps(json.loads(line) | {"gate": gate}, ensure_ascii=False).encode()
        return Publication(key=decode_responses(line, limits).batch_id.encode(), value=line)
    except BadMessage as error:
        if error.code == codes.NOT_JSON:
            json_object(line, name, number)  # says of a line that is cut off that it is
        raise UsageError(f"{where} would be refused: {error.detail}") from None
    except (ValueError, TypeError, RecursionError):
        json_object(line, name, number)
        raise UsageError(f"{where} is not a JSON object") from None


def _name(file: str) -> str:
    return shown_name(file) if file == "-" else Path(file).name
