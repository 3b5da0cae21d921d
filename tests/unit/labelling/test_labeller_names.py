"""One spelling for each name, at every way in; what cannot be seen is refused."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from streamer.errors import BadMessage, UsageError
from streamer.events import codes
from streamer.events.labels import decode_label, label_revision
from streamer.gates.labeller_names import fault, normalised
from streamer.gates.settings import GateSettings
from streamer.labels.label_files import LabelFileError, open_labels
from streamer.review.access import labeller_name
from tests.made import a_label

SAME = [
    ("ann", "ann"),
    ("  ann  lee ", "ann lee"),
    ("ann\u00a0lee", "ann lee"),
    ("\uff41\uff4e\uff4e", "ann"),
    ("Zoe\u0308", "Zo\u00eb"),
    ("\ufb01n", "fin"),
    ("gpt-4o-mini/rubric-1234abcd", "gpt-4o-mini/rubric-1234abcd"),
]
UNSEEN = [
    "", " ", "\u3000", "an\u200bn", "\u200bann", "ann\ufeff", "ann\u2060", "ann\u202e", "\u2066ann\u2069", "a\u00adnn", "ann\u200f",
    "ann\u034f", "ann\ufe0f", "ann\u3164", "ann\u2800", "ann\n", "a\tn", "ann\x7f", "a\u2028n", "a" * 201, "\ufdfa" * 20,
]  # fmt: skip


def event(labeller: str, **changes: Any) -> bytes:
    return json.dumps(a_label("bot", "b", "a", labeller=labeller, **changes)).encode()


@pytest.mark.parametrize(("written", "recorded"), SAME)
def test_a_name_has_one_spelling(written: str, recorded: str, tmp_path: Path) -> None:
    assert normalised(written) == recorded
    assert normalised(recorded) == recorded
    assert fault(recorded) is None
    assert label_revision(decode_label(event(written))).labeller == recorded
    assert labeller_name(written) == recorded
    assert GateSettings(encoder="x", labellers=(written, recorded)).labellers == (recorded,)
    file = tmp_path / "labels.csv"
    file.write_text(f"gate,batch_id,response_id,severity,kind,labeller\nbot,b,a,0,human,{written}\n")
    with open_labels(file, now=datetime(2026, 1, 1, tzinfo=UTC), labeller=recorded) as reader:
        assert [one.labeller for one in reader] == [recorded]


@pytest.mark.parametrize("name", UNSEEN)
def test_a_name_that_cannot_be_read_is_refused(name: str, tmp_path: Path) -> None:
    assert fault(normalised(name)) is not None
    with pytest.raises(BadMessage) as bad:
        decode_label(event(name))
    assert bad.value.code == codes.BAD_IDENTIFIER
    assert bad.value.detail.startswith("labeller ")
    with pytest.raises(ValueError, match="labellers must be"):
        GateSettings(encoder="x", labellers=(name,))
    if name.strip():
        file = tmp_path / "labels.jsonl"
        file.write_text(json.dumps(json.loads(event(name))) + "\n")
        with (
            pytest.raises(LabelFileError, match="column labeller"),
            open_labels(file, now=datetime(2026, 1, 1, tzinfo=UTC)) as reader,
        ):
            list(reader)
    if not any(space in name for space in "\n\t\u2028"):
        with pytest.raises(UsageError):
            labeller_name(name)


def test_letters_that_look_alike_are_other_names() -> None:
    assert normalised("\u0430nn") != "ann"


def test_a_label_without_a_signature_reads_as_before_and_half_of_one_is_refused() -> None:
    plain = label_revision(decode_label(event("ann")))
    assert (plain.signature, plain.key_id) == (None, None)
    signed = label_revision(decode_label(event("ann", signature="c2ln", key_id="ab" * 32)))
    assert (signed.signature, signed.key_id) == ("c2ln", "ab" * 32)
    for changes, code in (
        ({"signature": "c2ln"}, codes.INVALID_FIELD),
        ({"key_id": "ab"}, codes.INVALID_FIELD),
        ({"signature": "", "key_id": "ab"}, codes.BAD_IDENTIFIER),
        ({"signature": "x" * 201, "key_id": "ab"}, codes.BAD_IDENTIFIER),
        ({"signature": "x", "key_id": "a" * 65}, codes.BAD_IDENTIFIER),
        ({"signature": "x\x00", "key_id": "a"}, None),
        ({"signature": 1, "key_id": "a"}, codes.INVALID_FIELD),
    ):
        with pytest.raises(BadMessage) as bad:
            decode_label(event("ann", **changes))
        assert code is None or bad.value.code == code
