"""The label queue goes to a labelling tool and comes back by commands, twice: the second time nothing changes."""

import base64
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from streamer.cli import main
from streamer.gates.batch_key import BatchKey
from streamer.labels.bridges.registry import bridges
from streamer.store.db.schema import responses
from tests.checkout import ROOT
from tests.integration.store.conftest import World
from tests.services.loopback import Asked, Loopback
from tests.told import Told
from tests.unit.labelling.test_bridges import annotation, score

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


class Langfuse(Loopback):
    """Takes what the commands of docs/own-data.md send, and has every answer of a queue scored."""

    def __init__(self) -> None:
        super().__init__()
        self.traces: dict[str, object] = {}
        self.items: list[str] = []

    def respond(self, asked: Asked, body: bytes) -> None:
        if asked.command == "POST":
            self.take(asked, json.loads(body))
            asked.answer({})
        elif asked.path.startswith("/api/public/annotation-queues/queue-1/items?"):
            asked.answer(
                {"data": [{"objectId": one, "objectType": "TRACE"} for one in self.items], "meta": {}}
            )
        else:
            assert asked.path == "/api/public/v3/scores?name=severity&fields=subject,annotation&limit=100"
            asked.answer({"data": [score(one, "half") for one in self.items], "meta": {"limit": 100}})

    def take(self, asked: Asked, sent: Any) -> None:
        assert asked.headers["authorization"] == f"Basic {base64.b64encode(b'public:secret').decode()}"
        if asked.path == "/api/public/otel/v1/traces":
            ((span,),) = [
                [one for part in spans["scopeSpans"] for one in part["spans"]]
                for spans in sent["resourceSpans"]
            ]
            # As there: the same ids are the same trace.
            assert self.traces.setdefault(span["traceId"], sent) == sent
        else:
            assert asked.path == "/api/public/annotation-queues/queue-1/items"
            self.items.append(sent["objectId"])


@pytest.mark.skipif(
    not (shutil.which("curl") and shutil.which("jq")) and "CI" not in os.environ,
    reason="no curl or no jq: install your system's packages curl and jq",
)
def test_the_pages_commands_fill_a_queue_of_langfuse_once(world: World, capsys: pytest.CaptureFixture[str]):
    page = (ROOT / "docs" / "own-data.md").read_text("utf-8")
    send, fetch = re.findall(r"^```bash\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (fetch, *commands) = fetch.splitlines()
    assert main(["label", "queue", "--gate", GATE, "--format", "langfuse", "--out", "tasks.json"]) == 0
    with Langfuse() as langfuse:
        given = {"HOST": langfuse.address, "KEYS": "public:secret", "QUEUE": "queue-1"}
        for block in (send, send, fetch):
            subprocess.run(["bash", "-e", "-c", block], env=os.environ | given, timeout=240, check=True)
    assert sorted(langfuse.items) == sorted(langfuse.traces)
    assert len(langfuse.items) == 4
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0
    assert "imported 4 labels from scores.json" in capsys.readouterr().out
    assert world.store.labels.queue(GATE) == []


@pytest.mark.parametrize("tool", bridges())
def test_an_answer_without_its_text_is_no_task(tool: str, world: World, told: Told):
    with world.store._database.engine.begin() as connection:
        connection.execute(sa.update(responses).where(responses.c.batch.in_((1, 2))).values(text=None))
    kept = [one for one in world.store.labels.queue(GATE) if one.text is not None]
    assert len(kept) == 2
    said = told("label", "queue", "--gate", GATE, "--format", tool, "--out", "tasks.json").err
    assert len(json.loads(Path("tasks.json").read_text("utf-8"))) == len(kept)
    assert "2 responses wait for a severity, in tasks.json" in said
    assert f"gate {GATE}: left out 2 responses without a text: it was not kept, or was erased." in said
    assert "4 responses wait" in (said := told("label", "queue", "--gate", GATE, "--out", "all.csv").err)
    assert "left out" not in said


@pytest.mark.parametrize(
    ("batch", "kind", "goes_on"),
    [("b-0", "human", True), ("elsewhere", "human", False), ("b-0", "judge", False)],
)
def test_recalibrating_comes_next_where_a_label_counts(
    batch: str, kind: str, goes_on: bool, world: World, told: Told
):
    head = "gate,batch_id,response_id,severity,kind,labeller"
    Path("labels.csv").write_text(f"{head}\n{GATE},{batch},b,1,{kind},ann\n")
    said = told("label", "import", "labels.csv")
    assert "imported 1 label" in said.out
    assert (f"Next: streamer recalibrate {GATE}" in said.err) == goes_on


def test_a_tools_verdicts_need_no_option_but_the_gate(world: World, told: Told):
    rows = [{"custom": "x", "input": "?", "actual_output": text, "success": False} for text in ("1", "2")]
    Path("run.json").write_text(json.dumps({"testCases": rows}))
    said = json.loads(told("label", "import", "run.json", "--gate", GATE, "--json").out)
    assert (said["read"], said["other_kind"]) == (2, 0)
    Path("rows.json").write_text(json.dumps([{"batch_id": "b-0", "note": "x"}]))
    found = " ".join(told("label", "import", "rows.json", "--gate", GATE, status=1).err.split())
    assert "or the tool that wrote it: --format TOOL" in found


@pytest.mark.parametrize("tool", bridges())
def test_labels_come_back_once(tool: str, world: World, told: Told):
    def run(*words: str) -> str:
        return told(*list(words)).out

    queue = ("label", "queue", "--gate", GATE, "--format", tool, "--out")
    run(*queue, "tasks.json")
    assert run(*queue, "again.json") == ""
    tasks = json.loads(Path("tasks.json").read_text())
    assert tasks == json.loads(Path("again.json").read_text())
    Path("answered.json").write_text(json.dumps(answered(tool, tasks)))
    strangers = int(tool == "langfuse")
    for given in ((), ("--gate", GATE)):  # the second time, and of one gate
        said = json.loads(run("label", "import", "answered.json", "--format", tool, "--json", *given))
        wanted = (3, strangers, 0, 0)
        assert (said["read"], said["unmatched"], said["unrecorded"], said["other_kind"]) == wanted
        assert (said["stored"], said["repeated"]) == ((3, 0) if not given else (0, 3))
    found = world.store.labels.severities(GATE, "human")
    assert [found.get(BatchKey(GATE, f"b-{n}", 1), "b") for n in range(3)] == list(SEVERITIES)
    assert len(world.store.labels.queue(GATE)) == 1
    assert len(world.store.labels.drawn()) == 4
    assert world.store.labels.drawn("another") == []
    left = json.loads(run("label", "queue", "--gate", GATE, "--format", tool) or "[]")
    assert left == tasks[3:]
    if tool == "langfuse":
        there = " ".join(told("label", "import", "answered.json", "--format", tool).err.split())
        assert "1 label is of no answer that was drawn here" in there
