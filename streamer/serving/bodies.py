"""From what a request holds to events as they are on the topics: what may be left out is filled in, all else is checked."""

import re
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from streamer.errors import BadMessage
from streamer.events import codes, labels, responses
from streamer.events.cloudevents import rfc3339
from streamer.events.codec import malformed
from streamer.events.excerpts import one_line
from streamer.events.json_structure import check_structure, too_deep
from streamer.events.labels import LabelsV1
from streamer.events.limits import Limits
from streamer.events.responses import ResponsesV1

MOST_LABELS: Final = 1000
"""In one request."""
_MOST_FAULTS: Final = 10
"""Labels whose faults one refusal names."""


class _Given(msgspec.Struct):
    """The members that may be left out."""

    schema: Any = UNSET
    gate: Any = UNSET
    batch_id: Any = UNSET
    labelled_at: Any = UNSET


class _Texts(msgspec.Struct):
    """A batch whose answers are texts alone."""

    responses: list[str]


_texts = msgspec.json.Decoder(_Texts)
_BEHIND_TEXTS: Final = re.compile(r"at `\$\.responses\[[1-9]")
"""In what is said of an answer behind one or more that are texts."""
_given = msgspec.json.Decoder(_Given)
_items = msgspec.json.Decoder(list[msgspec.Raw])


class BatchBody(NamedTuple):
    """A batch to decide: the event, and its bytes as a publisher would have sent them."""

    event: ResponsesV1
    value: bytes


class SeverityBody(NamedTuple):
    """A severity to record, in the same way."""

    event: LabelsV1
    value: bytes


def batch(raw: bytes, *, gate: str, idempotency_key: str | None, limits: Limits) -> BatchBody:
    """Read a batch; answers that are texts get their places for ids, from 0. Raises `BadMessage` with a code of `codes`."""
    given = {"schema": responses.SCHEMA, "gate": gate, "batch_id": idempotency_key or str(uuid.uuid4())}
    same = {"gate": gate} | ({} if idempotency_key is None else {"batch_id": idempotency_key})
    value = _completed(_with_ids(raw, limits), given, same)
    return BatchBody(responses.decode_responses(value, limits), value)


def severities(raw: bytes, *, gate: str, kind: str, limits: Limits, now: datetime) -> list[SeverityBody]:
    """Read one severity or an array of them; `kind` : the gate's. Raises `BadMessage`, which names those of an array by their places."""
    if not raw.lstrip().startswith(b"["):
        return [_severity(raw, gate, kind, limits, now)]
    try:
        items = _items.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed(raw, str(error)) from None
    except RecursionError:
        raise too_deep(limits.max_depth) from None
    if len(items) > MOST_LABELS:
        raise BadMessage(codes.INVALID_FIELD, f"{len(items)} labels, at most {MOST_LABELS} are taken at once")
    read: list[SeverityBody] = []
    faults: list[BadMessage] = []
    for place, item in enumerate(items):
        try:
            read.append(_severity(bytes(item), gate, kind, limits, now))
        except BadMessage as bad:
            faults.append(BadMessage(bad.code, f"label {place}: {bad.detail}"))
    if faults:
        more = len(faults) - _MOST_FAULTS
        told = [one.detail for one in faults[:_MOST_FAULTS]] + (
            [f"and {more} more labels"] if more > 0 else []
        )
        raise BadMessage(faults[0].code, "; ".join(told))
    return read


def _with_ids(raw: bytes, limits: Limits) -> bytes:
    try:
        texts = _texts.decode(raw).responses
        whole = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if _BEHIND_TEXTS.search(str(error)):
            mixed = "answers are all texts, or all objects with id and text"
            raise BadMessage(codes.INVALID_FIELD, f"{error}; {mixed}") from None
        return raw  # answers with ids, or something that the decoder refuses
    check_structure(raw, limits.max_depth)  # of a key twice one is left in what is written below
    whole["responses"] = [{"id": str(place), "text": text} for place, text in enumerate(texts)]
    return msgspec.json.encode(whole)


def _severity(raw: bytes, gate: str, kind: str, limits: Limits, now: datetime) -> SeverityBody:
    given = {"schema": labels.SCHEMA, "gate": gate, "labelled_at": rfc3339(now)}
    value = _completed(raw, given, {"gate": gate})
    try:
        return SeverityBody(labels.decode_label(value, limits), value)
    except BadMessage as bad:
        every = _faults(value, kind) if bad.code == codes.INVALID_FIELD else ""
        raise BadMessage(bad.code, every or bad.detail) from None


def _faults(value: bytes, kind: str) -> str:
    """All that is wrong with the members of a label, of which a decoder tells the first alone; nothing, where it is more than one member."""
    faults = []
    try:
        given = msgspec.json.decode(value, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return ""
    for one in msgspec.structs.fields(LabelsV1):
        if one.name in given:
            try:
                msgspec.convert(given[one.name], one.type)
            except msgspec.ValidationError as error:
                faults.append(f"{one.name}: {one_line(str(error))}")
        elif one.required:
            its = f" (this gate's is {kind!r})" if one.name == "kind" else ""
            faults.append(f"{one.name} is missing{its}")
    if given.get("severity") is None and not given.get("severities"):
        faults.append(labels.NO_SEVERITY)
    return "; ".join(faults)


def _completed(raw: bytes, given: Mapping[str, str], same: Mapping[str, str]) -> bytes:
    """Put members that are missing in front of those that are there; all bytes of these stay, for the decoder to check.

    Raises `BadMessage` where a member that is `same` has another value.
    """
    try:
        found = _given.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return raw  # the decoder says what is wrong
    for name, value in same.items():
        if getattr(found, name) not in (UNSET, value):
            raise BadMessage(codes.INVALID_FIELD, f"{name} is not the one that the request names, {value!r}")
    missing = {name: value for name, value in given.items() if getattr(found, name) is UNSET}
    if not missing:
        return raw
    start = raw.index(b"{") + 1
    rest = raw[start:].lstrip()
    return b"".join(
        (raw[:start], msgspec.json.encode(missing)[1:-1], b"" if rest.startswith(b"}") else b",", rest)
    )
