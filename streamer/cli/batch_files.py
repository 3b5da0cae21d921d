"""What `streamer publish` reads: files of events or of response clouds, checked line by line, as messages to send."""

from __future__ import annotations

import gzip
import json
import re
import sys
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, cast

from streamer.clouds.cloud import cloud_labels, cloud_message, read_clouds
from streamer.errors import BadMessage, UsageError
from streamer.events.labels import encode_label
from streamer.events.responses import decode_responses
from streamer.gates.settings import GATE_NAME, GATE_NAME_RULE

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator

    from streamer.events.limits import Limits

FileKind = Literal["events", "clouds"]

_GZIP_MAGIC = b"\x1f\x8b"
_HEAD_BYTES = 8192
_SIGN = re.compile(rb'"(question_id|batch_id|schema)"\s*:')


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
    kind: FileKind | None = None,
) -> Iterator[Publication]:
    """Iterate over what a file asks to publish, in its order, one line in memory at a time.

    Parameters
    ----------
    file : a path, or ``-`` for standard input; plain or gzip, detected by content.
    gate : needed for clouds; replaces the gate of events when given.
    labels : take the clouds' labels along.
    labeller : who gave them; ``file:NAME`` when None.
    limits : bounds on an event.
    kind : what the file holds; None looks at its beginning.

    Raises
    ------
    UsageError : the file cannot be read, or a line is not fit to be published; the text names the line.
    """
    if gate is not None and GATE_NAME.fullmatch(gate) is None:
        raise UsageError(f"--gate {gate!r} is not a valid gate name: {GATE_NAME_RULE}")
    found = kind or file_kind(file)
    if found == "events":
        if labels:
            raise UsageError(
                f"{_name(file)} holds events, which carry no labels; --labels is for response clouds"
            )
        yield from _events(file, gate, limits)
        return
    if gate is None:
        raise UsageError(f"{_name(file)} holds response clouds, which name no gate; say which with --gate")
    at = datetime.now(UTC)
    who = labeller or f"file:{_name(file)}"[:200]
    for cloud in read_clouds(file):
        yield Publication(
            key=cloud.batch_id.encode(),
            value=cloud_message(cloud, gate, limits),
            labels=tuple(map(encode_label, cloud_labels(cloud, gate, who, at))) if labels else (),
        )


def file_kind(file: str) -> FileKind:
    """Return what a file holds, by its first bytes. Raises `UsageError` when they do not show it."""
    with _opened(file) as raw:
        head = raw.peek(_HEAD_BYTES)[:_HEAD_BYTES]
    if head.startswith(_GZIP_MAGIC):
        try:
            head = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, _HEAD_BYTES)
        except zlib.error:
            raise UsageError(f"{_name(file)} is a damaged gzip file; fetch it again") from None
    sign = _SIGN.search(head)
    if sign is None:
        raise UsageError(
            f"{_name(file)} holds neither events (schema, gate, batch_id, responses) nor response clouds "
            "(question_id, question, responses), one JSON object a line"
        )
    return "clouds" if sign[1] == b"question_id" else "events"


def _events(file: str, gate: str | None, limits: Limits) -> Iterator[Publication]:
    with _opened(file) as raw:
        lines: IO[bytes] = (
            cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if raw.peek(2).startswith(_GZIP_MAGIC) else raw
        )
        number = 0
        try:
            while line := lines.readline(2 * limits.max_value_bytes):
                number += 1
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if line.strip():
                    yield _event(line.strip(), gate, limits, f"{_name(file)}, line {number}")
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise UsageError(f"{_name(file)} is a damaged gzip file; fetch it again") from None


def _event(line: bytes, gate: str | None, limits: Limits, where: str) -> Publication:
    try:
        if gate is not None:
            line = json.dumps(json.loads(line) | {"gate": gate}, ensure_ascii=False).encode()
        return Publication(key=decode_responses(line, limits).batch_id.encode(), value=line)
    except BadMessage as error:
        raise UsageError(f"{where} would be refused: {error.detail}") from None
    except (ValueError, TypeError, RecursionError):
        raise UsageError(f"{where} is not a JSON object") from None


@contextmanager
def _opened(file: str) -> Iterator[io.BufferedReader]:
    try:
        if file == "-":
            yield cast("io.BufferedReader", sys.stdin.buffer)
        else:
            with Path(file).open("rb") as raw:
                yield raw
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror or error}") from None


def _name(file: str) -> str:
    return "standard input" if file == "-" else Path(file).name
