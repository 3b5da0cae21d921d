"""The line of `streamer dev` asks a gate that can answer it, with an event that a gate takes."""

import json
from typing import Any

import pytest

from streamer.cli.dev.look import first_request
from streamer.events.responses import decode_responses
from streamer.gates.policy import GateRevision
from streamer.gates.settings import GateSettings
from tests.made import a_revision

HERE = "all-MiniLM-L6-v2@53aa5117"


def gate(name: str, **settings: Any) -> GateRevision:
    return a_revision(GateSettings(**settings), gate=name)


BY_TEXT = gate("by-text", encoder=HERE)
BY_SCORE = gate("by-score", encoder="none", scorer="external")
OTHERS = [
    gate("elsewhere", encoder="external:made-up", embeddings="accept", dimension=16),
    gate("older", encoder="all-MiniLM-L6-v2@00000000"),
]


@pytest.mark.parametrize(
    ("gates", "encoder", "created", "asked", "scored"),
    [
        ([], HERE, "streamer gate create try", "try", False),
        ([], "none", "streamer gate create try --scorer external", "try", True),
        (OTHERS, HERE, "streamer gate create try", "try", False),
        ([*OTHERS, BY_TEXT, BY_SCORE], HERE, None, "by-text", False),
        ([*OTHERS, BY_TEXT, BY_SCORE], "none", None, "by-score", True),
    ],
)
def test_it_asks_a_gate_that_can_answer(
    gates: list[GateRevision], encoder: str, created: str | None, asked: str, scored: bool
) -> None:
    line = first_request("http://127.0.0.1:8080", gates, encoder=encoder)
    assert max(map(len, line.splitlines())) < 80  # where a terminal breaks lines, and pasting them with it
    if created is not None:
        assert line.startswith(f"{created}\n")
        line = line.removeprefix(f"{created}\n")
    command, body, end = line.split("'")
    assert command == f"curl http://127.0.0.1:8080/v1/gates/{asked}/decisions --json "
    assert end == ""
    event = json.loads(body) | {"schema": "streamer.responses.v1", "gate": asked, "batch_id": "b"}
    decoded = decode_responses(json.dumps(event).encode())
    assert [one.score is not None for one in decoded.responses] == [scored] * 2
