"""No event has a time that UTC cannot express, whoever makes it: a publisher, a file, or we."""

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest

from streamer.errors import BadMessage
from streamer.events import codes
from streamer.events.labels import decode_label
from streamer.events.responses import decode_responses
from streamer.events.topic import types
from streamer.labels.label_files import LabelFileError, open_labels
from tests.faults.mutations import EXAMPLES

TYPES = types()
BEYOND = (
    "0001-01-01T00:00:00+01:00",
    "0001-01-01T00:00:00+00:01",
    "0001-01-01T23:58:59+23:59",
    "9999-12-31T23:59:59-05:00",
    "9999-12-31T00:01:00-23:59",
)
WITHIN = (
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00-23:59",
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59+23:59",
    "2026-01-01T00:00:00+05:45",
)


@pytest.mark.parametrize("name", [name for name in TYPES if (EXAMPLES / name.partition(".")[0]).is_dir()])
def test_every_time_of_every_event_is_looked_at(name: str) -> None:
    """The times of an event stand at its top, where its base class looks."""
    found = 0
    for path in sorted((EXAMPLES / name.partition(".")[0]).rglob("*.json")):
        text = path.read_text("utf-8")
        for time in set(re.findall(r'"(\d{4}-\d{2}-\d{2}T[^"]*)"', text)):
            found += 1
            with pytest.raises(msgspec.ValidationError, match="outside the years 1 to 9999 in UTC"):
                msgspec.json.decode(text.replace(time, BEYOND[0]), type=TYPES[name])
    assert found or name.startswith("dead")


@pytest.mark.parametrize("time", BEYOND + WITHIN)
def test_times_at_the_end_of_the_calendar(time: str) -> None:
    batch = (EXAMPLES / "responses" / "v1").glob("*.json").__next__().read_bytes()
    label = (EXAMPLES / "labels" / "v1").glob("*.json").__next__().read_bytes()
    for value, decode, field in (
        (_with(batch, "created_at", time), decode_responses, "created_at"),
        (_with(label, "labelled_at", time), decode_label, "labelled_at"),
    ):
        if time in WITHIN:
            assert getattr(decode(value), field).astimezone(UTC)
        else:
            with pytest.raises(BadMessage, match=rf"{re.escape(time)} is outside .*\.{field}") as caught:
                decode(value)
            assert caught.value.code == codes.INVALID_FIELD


def test_an_event_of_ours_cannot_have_such_a_time_either() -> None:
    label = decode_label((EXAMPLES / "labels" / "v1").glob("*.json").__next__().read_bytes())
    beyond = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    with pytest.raises(ValueError, match="labelled_at"):
        msgspec.structs.replace(label, labelled_at=beyond)


@pytest.mark.parametrize("time", BEYOND)
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_label_file_is_told_row_and_column(tmp_path: Path, time: str, suffix: str) -> None:
    fields = {
        "gate": "g", "batch_id": "b", "response_id": "r", "severity": 0.5, "kind": "human", "labeller": "ana",
        "labelled_at": time,
    }  # fmt: skip
    file = tmp_path / f"labels.{suffix}"
    good = fields | {"labelled_at": WITHIN[0]}
    if suffix == "csv":
        rows = [",".join(map(str, row)) for row in (fields, good.values(), fields.values())]
    else:
        rows = ["", *(msgspec.json.encode(row).decode() for row in (good, fields))]
    file.write_text("\n".join(rows) + "\n")
    where = r"line 3, column labelled_at: .* is outside the years 1 to 9999 in UTC; correct it"
    with (
        open_labels(file, now=datetime(2026, 1, 1, tzinfo=UTC)) as reader,
        pytest.raises(LabelFileError, match=where),
    ):
        list(reader)


def _with(value: bytes, field: str, time: str) -> bytes:
    content = msgspec.json.decode(value)
    content[field] = time
    return msgspec.json.encode(content)
