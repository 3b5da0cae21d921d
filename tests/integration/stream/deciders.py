"""Deciders for tests of the stream: real outcomes, decided without an encoder."""

import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from streamer.gates.batch_key import BatchKey
from streamer.gates.settings import GateSettings
from streamer.journal import DeadLetter, OutboxMessage, Outcome, Record, ScoredResponse
from tests.made import a_decision, a_policy

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = a_policy(GateSettings(encoder="none@00000000"), gate="tests", valid_from=NOW)


class EchoDecider:
    """Ships every value that begins with ``ok``; refuses the rest. The batch id is the value."""

    def __init__(
        self, actions: str = "actions", before: Callable[[Sequence[Record]], None] = lambda _records: None
    ) -> None:
        self._actions = actions
        self._before = before
        self.calls: list[int] = []

    def outcomes(self, records: Sequence[Record], outdated: Sequence[Outcome] = ()) -> list[Outcome]:
        self._before(records)
        self.calls.append(len(records))
        return [self._outcome(record) for record in records]

    def dead_letter(self, record: Record, code: str, detail: str) -> DeadLetter:
        message = OutboxMessage(self._actions, record.key, record.value, (*record.headers, ("refused", b"1")))
        return DeadLetter(record=record, code=code, detail=detail, message=message)

    def _outcome(self, record: Record) -> Outcome:
        value = record.value or b""
        if not value.startswith(b"ok"):
            return self.dead_letter(record, "not_ok", "not ok")
        batch_id = value.decode()
        identity = f"id-{batch_id}"
        headers = ("ce_id", identity.encode()), ("none", None)
        return a_decision(
            POLICY,
            record=record,
            key=BatchKey("tests", batch_id, 1),
            content_hash=hashlib.sha256(value).digest(),
            decided_at=NOW,
            outcome="ship",
            selected="a",
            responses=(ScoredResponse("a", "text", 0.5, 1.0, "ship", False),),
            action=OutboxMessage(self._actions, record.key, b"action of " + value, headers),
            action_id=identity,
        )
