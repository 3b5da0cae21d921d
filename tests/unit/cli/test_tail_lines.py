"""Events as lines for people: what matters, on one line, and never a control character of somebody else's text."""

import json

import pytest
from rich.cells import cell_len

from streamer.cli.tail import AlignedFields, line
from streamer.events.topic import every
from streamer.stream.tail import TailedRecord

ACTION = {
    "gate": "bot", "batch_id": "b1", "attempt": 1, "action": "ship", "enforced": True, "selected": "a",
    "reason": "scored", "responses": [{"id": "a", "score": 0.914213, "action": "ship"}],
    "policy": {"version": 7, "state": "cut", "lambda": 0.83}, "audit": {"sampled": True},
}  # fmt: skip


def record(value: bytes | None, headers: tuple = ()) -> TailedRecord:
    return TailedRecord("t", 0, 41, None, value, headers, 1_795_000_000_123)


def test_an_action() -> None:
    text = line("actions", record(json.dumps(ACTION).encode()))
    for part in ("bot", "b1", "ship a", "scored", "0.914", "Q > 0.83", "v7", "to label"):
        assert part in text
    assert "shadow" not in text
    held = ACTION | {
        "action": "abstain", "selected": None, "enforced": False, "reason": "no_threshold", "attempt": 2,
        "responses": [{"id": "a", "score": None}], "policy": {"version": 1, "state": "closed", "lambda": None},
    }  # fmt: skip
    text = line("actions", record(json.dumps(held).encode()))
    for part in ("b1#2", "held", "no_threshold", "no score", "closed", "shadow"):
        assert part in text


def test_fields_stand_below_one_another() -> None:
    columns = AlignedFields()
    events = [
        ACTION | {"gate": gate, "batch_id": batch, "reason": reason}
        for gate, batch, reason in (
            ("support-bot", "order-1000", "no_threshold"), ("bot", "o1", "scored"), ("ボット", "o2", "scored"), ("bot", "x" * 99, "scored"),
            ("bot", "o3", "scored"),
        )
    ]  # fmt: skip
    lines = [line("actions", record(json.dumps(one).encode()), columns) for one in events]
    places = [cell_len(text[: text.index("(Q > 0.83)")]) for text in lines]
    assert len({*places[:3]}) == 1
    # One that is far too long stands out of its own line alone.
    assert places[3] > places[4]
    assert places[4] - places[0] == 32 - len("order-1000")
    assert lines[-1].endswith("to label")


def test_a_dead_letter() -> None:
    headers = (
        ("streamer_error_code", b"not_json"),
        ("__connect.errors.topic", b"streamer.responses"),
        ("__connect.errors.partition", b"0"),
        ("__connect.errors.offset", b"41"),
        ("__connect.errors.exception.message", b"it is not JSON"),
    )
    text = line("dead-letters", record(b"\xff", headers))
    assert "not_json  streamer.responses/0/41  it is not JSON" in text


@pytest.mark.parametrize("stream", list(every()))
@pytest.mark.parametrize("value", [None, b"", b"{}", b"[]", b"1", b"\xff", b'{"gate": 1}'])
def test_nothing_breaks_a_line(stream: str, value: bytes | None) -> None:
    assert len(line(stream, record(value)).splitlines()) == 1


def test_terminal_controls_do_not_pass() -> None:
    nasty = ACTION | {"batch_id": "a\x1b[2Jb\nc\u202ed"}
    assert line("actions", record(json.dumps(nasty).encode())).isprintable()
