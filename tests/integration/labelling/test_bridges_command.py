"""The label queue goes to a labelling tool and comes back by commands, twice: the second time nothing changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamer.cli import main
from streamer.gates.batch_key import BatchKey
from streamer.labels.bridges.registry import bridges
from tests.integration.store.conftest import World
from tests.unit.labelling.test_bridges import annotation, score

if TYPE_CHECKING:
    from collections.abc import Iterator

GATE = "support-bot"
CHOSEN = ("fine", "half", "worst")
SEVERITIES = (0.0, 0.5, 1.0)


@pytest.fixture
def world(migrated_sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMER_DATABASE_URL", migrated_sqlite_url)
    made = World(migrated_sqlite_url)
    made.gate(GATE)
    lease = made.lease()
    made.commit(made.slice(lease, *(made.decision(n, f"b-{n}", drawn=(1,)) for n in range(4)), expected=0))
    yield made
    made.close()


def answered(tool: str, tasks: list[dict[str, Any]]) -> object:
    """What the tool gives back once people have answered the first three tasks."""
    pairs = list(zip(tasks, CHOSEN, strict=False))
    if tool == "argilla":
        return [
            task | {"responses": {"severity": [{"value": choice, "user_id": "u"}]}} for task, choice in pairs
        ]
    if tool == "label-studio":
        return [task | {"annotations": [annotation({"choices": [choice]})]} for task, choice in pairs]
    scores = [score(task["item"]["objectId"], choice) for task, choice in pairs]
    return {"data": [*scores, score("0" * 32)], "meta": {"limit": 100}}


@pytest.mark.parametrize("tool", bridges())
def test_labels_come_back_once(tool: str, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*words: str) -> str:
        assert main(list(words)) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    queue = ("label", "queue", "--gate", GATE, "--format", tool, "--out")
    run(*queue, "tasks.json")
    assert run(*queue, "again.json") == ""
    tasks = json.loads(Path("tasks.json").read_text())
    assert tasks == json.loads(Path("again.json").read_text())
    Path("answered.json").write_text(json.dumps(answered(tool, tasks)))
    strangers = int(tool == "langfuse")
    for given in ((), ("--gate", GATE)):  # the second time, and of one gate
        said = json.loads(run("label", "import", "answered.json", "--format", tool, "--json", *given))
        assert (said["read"], said["unmatched"], said["unrecorded"], said["other_kind"]) == (
            3,
            strangers,
            0,
            0,
        )
        assert (said["stored"], said["repeated"]) == ((3, 0) if not given else (0, 3))
    found = world.store.labels.severities(GATE, "human")
    assert [found.get(BatchKey(GATE, f"b-{n}", 1), "b") for n in range(3)] == list(SEVERITIES)
    assert len(world.store.labels.queue(GATE)) == 1
    assert len(world.store.labels.drawn()) == 4
    assert world.store.labels.drawn("another") == []
    left = json.loads(run("label", "queue", "--gate", GATE, "--format", tool) or "[]")
    assert left == tasks[3:]
    if tool == "langfuse":
        assert main(["label", "import", "answered.json", "--format", tool]) == 0
        assert "1 label is of no answer that was drawn here" in " ".join(capsys.readouterr().err.split())
