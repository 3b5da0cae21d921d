"""Migrated stores on both databases, and a small world of gates, records and decisions to fill them with."""

import hashlib
import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from streamer.gates.batch_key import BatchKey
from streamer.gates.policy import Policy
from streamer.gates.settings import GateSettings
from streamer.journal import (
    BatchDecision,
    DeadLetter,
    LabelRevision,
    Lease,
    OutboxMessage,
    Outcome,
    Partition,
    Record,
    Redelivery,
    ScoredResponse,
    Slice,
)
from streamer.signing.policies import PolicySignature
from streamer.store import Store, open_store
from tests.made import a_decision

START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
SETTINGS = GateSettings(encoder="all-MiniLM-L6-v2@53aa5117", audit_probability=0.5, mode="enforce")


class SteppingClock:
    """Moves on by a second whenever it is asked."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def policy_message(policy: Policy, _signature: PolicySignature | None = None) -> OutboxMessage:
    value = json.dumps([policy.version, policy.state, policy.threshold]).encode()
    return OutboxMessage("streamer.thresholds", policy.gate.encode(), value, (("ce_id", b"p"),))


def dead_letter_message(record: Record, code: str, detail: str) -> OutboxMessage:
    headers = (*record.headers, ("streamer_error_code", code.encode()))
    return OutboxMessage("streamer.dead-letters", record.key, record.value, headers)


class World:
    """One log, one gate, and whatever a test lets happen in them."""

    def __init__(self, url: str, *, log_id: str = "log-1") -> None:
        self.url = url
        self.log_id = log_id
        self.clock = SteppingClock()
        self.stores: list[Store] = []
        self.store = self.open()
        self.policy: Policy | None = None

    def open(self, **changes: Any) -> Store:
        """Another store on the same database, with what is given in place of the world's."""
        parts: dict[str, Any] = {
            "clock": self.clock,
            "policy_message": policy_message,
            "dead_letter_message": dead_letter_message,
        }
        store = open_store(self.url, **parts | changes)
        self.stores.append(store)
        return store

    def gate(self, name: str = "support-bot", **changes: Any) -> Policy:
        self.store.gates.create(name, replace(SETTINGS, **changes), by="ana", reason="new", now=START)
        self.policy = self.store.policies.newest(name)
        return self.policy

    def partition(self, number: int = 0, topic: str = "streamer.responses") -> Partition:
        return Partition(self.log_id, topic, number)

    def lease(
        self, number: int = 0, *, store: Store | None = None, topic: str = "streamer.responses"
    ) -> Lease:
        partition = self.partition(number, topic)
        return (store or self.store).lease([partition])[partition]

    def record(self, offset: int, number: int = 0, topic: str = "streamer.responses") -> Record:
        return Record(
            self.partition(number, topic), offset, b"k\x00\xff", b'{"n": %d}' % offset,
            (("h", b"\xfe"), ("n", None)), 17,
        )  # fmt: skip

    def decision(
        self,
        offset: int,
        batch_id: str | None = None,
        *,
        number: int = 0,
        content: str = "one",
        scores: Sequence[float] | None = (0.25, 0.75),
        actions: Sequence[str] = ("abstain", "abstain"),
        attempt: int = 1,
        sampled: bool = True,
        drawn: Sequence[int] = (1,),
        policy: Policy | None = None,
        at: datetime = START,
        **changes: Any,
    ) -> BatchDecision:
        chosen = policy or self.policy
        key = BatchKey(chosen.gate, batch_id or f"b{number}-{offset}", attempt)
        responses = tuple(
            ScoredResponse(
                id="abcdefghij"[i],
                text=f"{content} answer {i} — ünïcode",
                score=None if scores is None else scores[i],
                raw_energy=None if scores is None else scores[i] / 3,
                action=action,  # type: ignore[arg-type]
                drawn=sampled and i in drawn,
            )
            for i, action in enumerate(actions)
        )
        shipped = [response.id for response in responses if response.action == "ship"]
        unit = chosen.settings.unit
        outcome = (
            "abstain"
            if not shipped
            else "ship"
            if len(shipped) == len(responses) or unit == "best"
            else "mixed"
        )
        action = OutboxMessage(
            "streamer.actions",
            b"k\x00",
            f"action of {key} {content}".encode(),
            (("ce_id", b"\x00\xff"), ("t", None)),
        )
        fields: dict[str, Any] = {
            "record": self.record(offset, number), "key": key, "outcome": outcome, "action": action,
            "content_hash": hashlib.sha256(content.encode()).digest(), "responses": responses,
            "prompt": f"prompt {content}", "references": ("ref", "other"), "created_at": START,
            "metadata": {"z": 1e300, "a": [None, -0.0, {"b": "ü\x00"}], "n": 2**60},
            "reason": "scored" if shipped else "no_threshold", "decided_at": at,
            "selected": shipped[0] if shipped and unit == "best" else None, "sampled": sampled,
            "sampling_probability": 0.5, "action_id": str(uuid.uuid5(uuid.NAMESPACE_OID, repr(key))),
        }  # fmt: skip
        return a_decision(chosen, **fields | changes)

    def redelivery(self, offset: int, batch_id: str, *, number: int = 0, content: str = "one") -> Redelivery:
        return Redelivery(
            record=self.record(offset, number),
            key=BatchKey(self.policy.gate, batch_id, 1),
            content_hash=hashlib.sha256(content.encode()).digest(),
        )

    def dead(
        self, offset: int, *, number: int = 0, code: str = "not_json", detail: str = "bad"
    ) -> DeadLetter:
        record = self.record(offset, number)
        return DeadLetter(
            record=record, code=code, detail=detail, message=dead_letter_message(record, code, detail)
        )

    def label(
        self,
        severity: float,
        batch_id: str,
        *,
        response_id: str = "b",
        labeller: str = "ana",
        at: datetime = START,
        offset: int | None = None,
        **changes: Any,
    ) -> LabelRevision:
        fields: dict[str, Any] = {
            "key": BatchKey("support-bot", batch_id, 1), "response_id": response_id,
            "severity": severity, "raw_severity": None, "kind": "human", "labeller": labeller,
            "labelled_at": at,
            "record": None if offset is None else self.record(offset, topic="streamer.labels"),
        }  # fmt: skip
        return LabelRevision(**(fields | changes))

    def slice(self, lease: Lease, *outcomes: Outcome, expected: int | None = None) -> Slice:
        record = outcomes[-1].record
        return Slice(lease, lease.next_offset if expected is None else expected, record.offset + 1, outcomes)

    def keep(self, *outcomes: Outcome) -> list[list[str]]:
        """Commit what became of the next offsets of the first partition."""
        return self.commit(self.slice(self.lease(), *outcomes))

    def commit(self, *slices: Slice, store: Store | None = None) -> list[list[str]]:
        return [list(kinds) for kinds in (store or self.store).commit(slices, now=self.clock())]

    def rows(self, query: str, **values: Any) -> list[Any]:
        """Look behind the store's back."""
        with self.store._database.reading() as connection:
            return list(connection.execute(sa.text(query), values))

    def tamper(self, *statements: str) -> None:
        """Change what may not be changed, as somebody with all rights could: guards off, then on."""

        def work(connection: sa.Connection) -> None:
            if self.store._database.sqlite:
                guards = list(
                    connection.execute(sa.text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
                )
                for name, _ in guards:
                    connection.exec_driver_sql(f"DROP TRIGGER {name}")
            else:
                connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
                guards = []
            for statement in statements:
                connection.execute(sa.text(statement))
            for _, sql in guards:
                connection.exec_driver_sql(sql)

        self.store._database.writing(work)

    def close(self) -> None:
        for store in self.stores:
            store.close()


@pytest.fixture
def new_world(migrated_database_url: str) -> Iterator[Callable[..., World]]:
    """Makes worlds over one fresh, migrated database."""
    made: list[World] = []

    def make(**options: Any) -> World:
        made.append(World(migrated_database_url, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    """A world with the gate `support-bot`."""
    made = new_world()
    made.gate()
    return made


@pytest.fixture
def postgres_world(migrated_postgres_url: str) -> Iterator[World]:
    world = World(migrated_postgres_url)
    world.gate()
    yield world
    world.close()


def interrupted(world: World, meanwhile: Callable[[], object]) -> Store:
    """A store that lets something happen in the middle of a commit that has a dead letter of the store's own."""

    def message(record: Record, code: str, detail: str) -> OutboxMessage:
        meanwhile()
        return dead_letter_message(record, code, detail)

    store = open_store(
        world.url, clock=world.clock, policy_message=policy_message, dead_letter_message=message
    )
    world.stores.append(store)
    return store
