"""docs/regenerate.md: its consumer, as it stands on the page, against Kafka and a worker."""

import asyncio
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from streamer import wiring
from streamer.gates.settings import GateSettings
from tests.faults import oracle
from tests.faults.site import GATE, Site, a_site, put_in_force
from tests.services.kafka import KafkaBroker

PAGE = (Path(__file__).parents[2] / "docs" / "regenerate.md").read_text(encoding="utf-8")
ATTEMPTS = 3
ALIKE = [0.97, 0.99, 0.98]
APART = [0.1, 0.2, 0.3]
SCORED: dict[str, Any] = {"scorer": "external", "encoder": "none", "embeddings": "refuse", "dimension": None}


def from_the_page() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "regenerate"}
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        exec(compile(block, "docs/regenerate.md", "exec"), names)
    return names


class Model:
    """Samples what it was told to, call by call; the last kind again and again."""

    def __init__(self, *kinds: list[float], pause: float = 0.0) -> None:
        self.kinds = kinds
        self.pause = pause
        self.calls = 0

    async def __call__(self, prompt: str) -> list[dict[str, Any]]:
        await asyncio.sleep(self.pause)
        scores = self.kinds[min(self.calls, len(self.kinds) - 1)]
        self.calls += 1
        return [{"text": f"{prompt} {self.calls}.{i}", "score": score} for i, score in enumerate(scores)]


@pytest.fixture
def site(
    kafka_broker: KafkaBroker, sqlite_database_url: str, topic_prefix: str, tmp_path: Path
) -> Iterator[Site]:
    with (
        ExitStack() as stack,
        a_site(kafka_broker, sqlite_database_url, topic_prefix, tmp_path, stack) as one,
    ):
        yield one


def put(site: Site, **settings: Any) -> None:
    """Give the gate other settings and a threshold at once."""
    site.store.gates.revise(GATE, SCORED | settings, by="test", reason="test")
    put_in_force(site.store, 0.6)
    wiring.publish_pending(site.settings)


def test_the_consumer_asks_again_and_stops(site: Site) -> None:
    put(site, unit="best", hold_action="regenerate", max_attempts=ATTEMPTS)
    site.store.gates.create("in-shadow", GateSettings(**SCORED), by="test", reason="test")
    worker = site.start_worker()
    worker.wait_until_ready()
    asyncio.run(the_requests(site, from_the_page()["GatedAnswers"]))
    topics = wiring.topics(site.settings)
    assert worker.terminate() == 0
    assert not oracle.read_all(wiring.connection(site.settings), topics.dead_letters)


async def the_requests(site: Site, consumer: Any) -> None:
    def answers(model: Model, *, gate: str = GATE, seconds: float = 30.0) -> Any:
        return consumer(
            gate, model, bootstrap=site.settings.bootstrap_servers, seconds=seconds,
            prefix=site.settings.kafka.topic_prefix,
        )  # fmt: skip

    at_once, at_second, never, slow = (Model(ALIKE), Model(APART, ALIKE), Model(APART), Model(APART, pause=9))
    async with (
        answers(at_once) as a,
        answers(at_second) as b,
        answers(never) as c,
        answers(slow, seconds=0.5) as d,
        answers(Model(APART), gate="in-shadow") as e,
    ):
        texts = await asyncio.gather(
            a.answer("at-once", "hello"), b.answer("at-second", "hello"),
            c.answer("never", "hello"), d.answer("slow", "hello"), e.answer("in-shadow", "hello"),
        )  # fmt: skip
        assert re.fullmatch(r"hello 1\.\d", texts[0])
        assert re.fullmatch(r"hello 2\.\d", texts[1])
        assert texts[2:] == [None, None, "hello 1.0"]
        assert (at_once.calls, at_second.calls, slow.calls) == (1, 2, 0)
        assert never.calls == ATTEMPTS + 1  # the last one is told that attempts are exhausted
    silent = Model(ALIKE)
    async with answers(silent, seconds=1.0) as f:
        f.responses_topic += "-nobody-reads"
        make_topic(site, f.responses_topic)
        assert await f.answer("unanswered", "hello") is None
        assert silent.calls == 1
        assert not f.waiting


def make_topic(site: Site, name: str) -> None:
    from kafka.admin import KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=site.settings.bootstrap_servers)
    try:
        admin.create_topics([NewTopic(name, 1, 1)])
    finally:
        admin.close()


def test_the_command_line_of_the_page_exists() -> None:
    (block,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    words = shlex.split(block)
    options = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    assert words[:3] == ["streamer", "gate", "create"]
    for option in (word for word in words if word.startswith("--")):
        assert f"`{option} " in options
    for test in re.findall(r"tests/[a-z_/0-9]+\.py", PAGE):
        assert (Path(__file__).parents[2] / test).is_file()
