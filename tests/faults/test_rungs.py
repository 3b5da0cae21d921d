"""Case 27 with an expensive gate behind a cheap one: killed between the two or anywhere else, while callers ask and ask again."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from streamer.failpoints import POINTS, RUN_POINTS
from tests.faults.endpoint import PATIENCE, Site
from tests.faults.matrix import Matrix
from tests.faults.oracle import Findings
from tests.faults.site import wait_until
from tests.integration.serving.model_server import AGREED, ANSWERS, ENCODER, Model
from tests.services.openai_server import ChatReply, ChatRequest
from tests.services.ports import free_port

STEPS = [point for point in POINTS if point not in RUN_POINTS and not point.endswith(("publish", "mark"))]
"""Nothing is published here."""
GATES: dict[str, dict[str, Any]] = {
    "bot": {"then": "bot-dear", "timeout_seconds": 5},
    "bot-dear": {"model": "large", "timeout_seconds": 5},
}
AGREEING = {0: (ANSWERS, 0), 1: (ANSWERS - 1, ANSWERS), 2: (0, ANSWERS), 3: (0, 0)}
"""By a prompt's number, of four: how many answers of the cheap and of the dear model agree."""
LAST_WORD = {0: ("bot", "ship"), 1: ("bot", "abstain"), 2: ("bot-dear", "ship"), 3: ("bot-dear", "abstain")}
KILLS = 50
WAITS = (0.3, 3.0, 20.0)


def reply(request: ChatRequest) -> ChatReply:
    number = int(request.body["messages"][0]["content"].rpartition(" ")[2])
    agreeing = AGREEING[number % 4][request.body["model"] == "large"]
    # Of answers that differ no two asks give the same: whoever samples again would be told something else.
    texts = [AGREED] * agreeing + [f"{request.number}.{one}" for one in range(ANSWERS - agreeing)]
    return ChatReply(texts[0], further=texts[1:])


class ChatCallers:
    """Threads that ask about one prompt after the other, each until it is answered, and often once more."""

    def __init__(self, base: str, threads: int) -> None:
        self.base = base
        self.answered: dict[str, dict[str, Any]] = {}
        self.refused: set[str] = set()
        self.errors: list[BaseException] = []
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(threads)
        ]

    def __enter__(self) -> ChatCallers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in self._threads)
        if self.errors:
            raise self.errors[0]

    def _run(self, thread: int) -> None:
        rng, number = random.Random(thread), 0
        try:
            while not self._stopping.is_set():
                number += 1
                name = f"c-{thread}-{number}"
                while not self._stopping.is_set() and not self.hear(name, rng.choice(WAITS)):
                    time.sleep(0.05)
                if rng.random() < 0.3:
                    self.hear(name, 20.0)
        except BaseException as error:
            self.errors.append(error)

    def hear(self, name: str, wait: float) -> bool:
        """Ask once; whether a decision was told, and always the same."""
        prompt = f"Question {name.rpartition('-')[2]}"
        try:
            answer = httpx.post(
                f"{self.base}/v1/chat/completions",
                json={"model": "gate/bot", "messages": [{"role": "user", "content": prompt}]},
                headers={"idempotency-key": name, "prefer": f"wait={wait:g}"},
                timeout=30,
            )
        except httpx.TransportError:
            return False
        if answer.status_code != 200:
            assert answer.status_code in (429, 503), answer.text
            self.refused.add(name)
            return False
        body = answer.json()
        assert self.answered.setdefault(name, body) == body, f"{name} was answered otherwise before"
        return True


@pytest.fixture
def chat_site(migrated_database_url: str, tmp_path: Path) -> Iterator[tuple[Site, Model]]:
    site = Site(migrated_database_url, tmp_path)
    with Model() as model:
        model.reply = reply
        site.gate("bot", scorer="gram", encoder=ENCODER, label_floor=0.5, cut=0.9)
        site.gate("bot-dear", scorer="gram", encoder=ENCODER, method="hb")
        yield site, model
        site.close()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_killed_while_one_gate_hands_on_to_the_next(chat_site: tuple[Site, Model], matrix: Matrix) -> None:
    site, model = chat_site
    rng, port, kills = random.Random(1), str(free_port()), KILLS
    plan: list[str | None] = ["before_commit", "after_commit", *STEPS, *STEPS, *[None] * 50][:kills]
    slowest = 0.0
    with ChatCallers(f"http://127.0.0.1:{port}", threads=4) as callers:
        for step in plan:
            passing = 1 if step == "after_lease" else rng.randint(2, 8)
            began, before = time.monotonic(), len(callers.answered)
            endpoint = model.serve(
                site, "--port", port, gates=GATES,
                failpoints="" if step is None else f"{step}=kill@{passing}", ready=False,
            )  # fmt: skip
            if step is None:
                wait_until(lambda before=before: len(callers.answered) > before, "somebody is answered")  # type: ignore[misc]
                slowest = max(slowest, time.monotonic() - began)
                time.sleep(rng.uniform(0, 1.0))
                endpoint.kill()
            else:
                endpoint.wait_until_killed()
        last = model.serve(site, "--port", port, gates=GATES)
        before = len(callers.answered)
        wait_until(lambda: len(callers.answered) > before + 8, "somebody is answered at the end")
    told = dict(callers.answered)
    for name in sorted(told):
        assert callers.hear(name, 20.0)
    decided = {
        (gate, batch): (outcome, reason)
        for gate, batch, outcome, reason in site.rows(
            "SELECT b.gate, b.batch_id, d.outcome, d.reason FROM batches b JOIN decisions d ON d.batch = b.id"
        )
    }
    ((outcomes,),) = site.rows("SELECT count(*) FROM outcomes WHERE kind = 'decision'")
    assert outcomes == len(decided), "decided twice"
    for name, body in told.items():
        said, number = body["streamer"], int(name.rpartition("-")[2])
        assert decided[said["gate"], name] == (said["action"], said["reason"])
        assert ("bot-dear", name) not in decided or said["gate"] == "bot-dear", f"{name}: not the last word"
        if said["reason"] == "scored":
            assert (said["gate"], said["action"]) == LAST_WORD[number % 4]
        else:
            there = {("abstain", "deadline_passed"), ("abstain", "too_few_responses")}
            assert (said["action"], said["reason"]) in there
    for gate, name in decided.keys() - {(one["streamer"]["gate"], name) for name, one in told.items()}:
        if name not in told and decided[gate, name][0] == "ship":
            assert name not in callers.refused, f"{name} was told to hold, and ships"
    gates = {one["streamer"]["gate"] for one in told.values() if one["streamer"]["action"] == "ship"}
    assert gates == set(GATES)
    site.check()
    assert last.terminate() == 0
    assert len([one for one in site.started if one.process.returncode == -signal.SIGKILL]) == kills
    found = Findings(
        events=outcomes, lost=0, conflicting=0, decisions=outcomes, dead_letters=0, duplicates=0,
        labels=0, actions_published=0, republished=0,
    )  # fmt: skip
    where = "SQLite" if site.engine.dialect.name == "sqlite" else "PostgreSQL"
    matrix.add(
        f"27 by HTTP: an expensive gate behind a cheap one, killed {kills} times, {where}",
        found,
        seconds=slowest,
    )
