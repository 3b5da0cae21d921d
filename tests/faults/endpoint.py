"""`streamer serve` in processes of its own over one database, gates that ship, and the record to compare answers with."""

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa

from streamer import wiring
from streamer.calibration import Threshold
from streamer.gates.settings import GateSettings
from streamer.settings.settings import load_settings
from streamer.store import Store
from tests.faults.oracle import verified
from tests.faults.site import record_threshold
from tests.faults.worker_process import WorkerProcess
from tests.services.kafka import KafkaBroker

GATE = "bot"
PATIENCE = 240.0


def batch(name: str, *, score: float = 0.9, prompt: str = "Where?") -> dict[str, Any]:
    """A batch that gate `bot` ships where a score is above .5."""
    return {
        "batch_id": name,
        "prompt": prompt,
        "responses": [
            {"id": "a", "text": "Here.", "score": score},
            {"id": "b", "text": "There.", "score": 0.2},
        ],
    }


class Endpoint(WorkerProcess):
    """One process of `streamer serve`."""

    def __init__(
        self, settings: dict[str, str], log: Path, arguments: list[str], program: Sequence[str]
    ) -> None:
        super().__init__(
            settings, log, program=program, service="serve", arguments=["--port", "0", *arguments]
        )
        self.base: str = self.announced["endpoint"]
        self.client = httpx.Client(base_url=self.base, timeout=PATIENCE)

    def ask(self, body: dict[str, Any], *, gate: str = GATE, **options: Any) -> httpx.Response:
        return self.client.post(f"/v1/gates/{gate}/decisions", json=body, **options)

    def close(self) -> None:
        self.client.close()
        super().close()


@dataclass
class Site:
    """A database, its gates, and the processes over it."""

    url: str
    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    started: list[Endpoint] = field(default_factory=list)
    program: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.store: Store = wiring.open_store(load_settings(database={"url": self.url}))
        # Prepared statements outlive a transaction, which a pooler need not do.
        unprepared = {"prepare_threshold": None} if self.url.startswith("postgresql") else {}
        self.engine = sa.create_engine(self.url, connect_args=unprepared)

    def gate(self, name: str = GATE, *, cut: float = 0.5, **settings: Any) -> None:
        chosen: dict[str, Any] = {
            "scorer": "external", "encoder": "none", "mode": "enforce", "audit_probability": 0.5,
        }  # fmt: skip
        self.store.gates.create(name, GateSettings(**chosen | settings), by="ana", reason="test")
        threshold = Threshold(state="cut", value=cut, alpha=0.05, method="mean", groups=0, guarantee="")
        record_threshold(self.store, name, threshold)

    def with_kafka(self, broker: KafkaBroker, prefix: str) -> None:
        """Make the topics; instances that serve with Kafka from now on use them."""
        for name in ("responses", "labels", "actions", "thresholds", "dead-letters", "alerts", "desk"):
            broker.create_topic(f"{prefix}{name}")
        self.settings |= {
            "STREAMER_KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap,
            "STREAMER_KAFKA_TOPIC_PREFIX": prefix,
            "STREAMER_KAFKA_GROUP_ID": prefix,
        }

    def serve(self, *arguments: str, kafka: bool = False, ready: bool = True, **environment: str) -> Endpoint:
        log = self.folder / f"serve-{len(self.started)}.log"
        settings = self._own_settings() | environment
        one = Endpoint(settings, log, [*([] if kafka else ["--no-kafka"]), *arguments], self.program)
        self.started.append(one)
        if ready:
            one.wait_until_ready()
        return one

    def environment(self) -> dict[str, str]:
        """The whole environment of a command with the site's settings."""
        return os.environ | self._own_settings()

    def _own_settings(self) -> dict[str, str]:
        return {
            "STREAMER_DATABASE_URL": self.url,
            "STREAMER_ENCODER_NAME": "none",
            "STREAMER_LOGGING_FORMAT": "json",
        } | self.settings

    def end_slot(self, number: int) -> None:
        """Let the lease of a slot run out."""
        with self.engine.begin() as connection:
            schema = "streamer." if self.engine.dialect.name == "postgresql" else ""
            connection.exec_driver_sql(
                f"UPDATE {schema}leases SET expires_at = '2000-01-01' WHERE name = 'serve-{number}'"
            )

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with self.engine.begin() as connection:
            if self.engine.dialect.name == "postgresql":
                connection.exec_driver_sql("SET LOCAL search_path TO streamer")
            return [tuple(row) for row in connection.exec_driver_sql(statement)]

    def recorded(self) -> dict[str, bytes]:
        """The action events on record, by batch."""
        rows = self.rows(
            "SELECT b.batch_id, d.action_value FROM batches b JOIN decisions d ON d.batch = b.id WHERE b.attempt = 1"
        )
        return {name: bytes(value) for name, value in rows}

    def outcomes(self, topic: str = "http") -> list[str]:
        return [
            kind
            for (kind,) in self.rows(
                f"SELECT kind FROM outcomes WHERE topic = '{topic}' ORDER BY partition, leaf_index"
            )
        ]

    def check(self) -> None:
        """The record is in order, and requests are numbered without holes."""
        report = verified(self.store, [])
        assert not any("offsets of" in note for note in report.notes), report.notes

    def close(self) -> None:
        with ExitStack() as stack:
            stack.callback(self.engine.dispose)
            stack.callback(self.store.close)
            for one in self.started:
                stack.callback(one.close)


def action(response: httpx.Response) -> dict[str, Any]:
    """The decision in an answer."""
    assert response.status_code == 200, response.text
    return json.loads(response.content)


def held(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem in an answer, which holds."""
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert (response.status_code, problem["status"], problem["code"]) == (status, status, code), problem
    assert problem["action"] == "abstain"
    assert problem["title"]
    assert problem["detail"]
    return problem
