"""What is done with a request, from its event to the answer that stands on record."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from streamer.deciding.policy_book import PolicyBook
from streamer.errors import BadMessage
from streamer.events import codes
from streamer.events.labels import label_revision
from streamer.gates.batch_key import BatchKey
from streamer.gates.policy import Policy
from streamer.journal import BatchDecision, DeadLetter, Headers, Partition, RecordedAction, RecordedBatch
from streamer.serving.bodies import BatchBody, SeverityBody
from streamer.serving.deadline import GRACE_SECONDS, Deadline
from streamer.serving.lane import Ended, Lane, Recorded
from streamer.serving.problems import Problem, overloaded, reading, refused, unavailable
from streamer.store.labels.revisions import Labels
from streamer.store.store import Store

T = TypeVar("T")

_AWAY = "the database does not answer; hold, and ask again with the same batch_id"
_UNKNOWN = "nothing was recorded in time that could be told; hold, and ask again with the same batch_id to know what stands"


class AnsweredAction(NamedTuple):
    """An action event as it is recorded, with its receipt; `again`: it was, before this request came."""

    action: bytes
    again: bool
    receipt: str | None


class TakenLabels(NamedTuple):
    """How many severities are recorded; of these, how many are of an answer that is not in the record, and how many are of
    another kind than the gate's, so that they change no threshold."""

    recorded: int
    unrecorded: int
    other_kind: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLog:
    """The partitions of one slot, and what becomes of requests there.

    `main` decides batches. `side` never waits for an encoder: it records severities, and holds of
    batches that `main` has not decided in time. Whichever lane commits a batch first, its decision
    stands, and the other's record is a duplicate of it. `partitions` are where batches, late
    batches and severities are numbered. `judges` gives a gate's verdict in a word and in a
    sentence, None where there is none yet; it blocks, and may raise `Unavailable`. `reachable`: a
    request can be recorded now, for the slot is ours, and the database answered when it was last
    asked to commit. Reading the database blocks in `executor`.
    """

    main: Lane
    side: Lane
    book: PolicyBook
    actions: Store
    labels: Labels
    judges: Callable[[str], tuple[str | None, str | None]]
    partitions: tuple[Partition, Partition, Partition]
    reachable: Callable[[], bool]
    executor: Executor

    async def decide(
        self, batch: BatchBody, deadline: Deadline, *, headers: Headers, timestamp_ms: int
    ) -> AnsweredAction:
        """Decide a batch, or hold it at its deadline. The answer is on record.

        Raises `Problem` when it is refused, too much waits, or nothing could be recorded within
        `GRACE_SECONDS` of the deadline. No ship is committed then any more; one whose commit the
        database had received in time may stand.
        """
        await self.policy(batch.event.gate)
        self._admit(self.main)
        here, late, _ = self.partitions
        key = batch.event.batch_id.encode()
        asked = self.main.submit(
            here, batch.value, key=key, headers=headers, timestamp_ms=timestamp_ms, deadline_ms=deadline.ms
        )
        recorded = await _first({asked}, until=deadline.at)
        in_time = recorded is not None
        if recorded is None:
            held = self.side.submit(
                late,
                batch.value,
                key=key,
                headers=headers,
                timestamp_ms=timestamp_ms,
                deadline_ms=deadline.ms,
            )
            recorded = await _first({asked, held}, until=asyncio.get_running_loop().time() + GRACE_SECONDS)
        if recorded is None:
            raise unavailable(_UNKNOWN)
        answer = await self._answer(recorded, batch.event.key)
        return (
            answer if in_time else answer._replace(again=False)
        )  # of one request both lanes may have a record

    async def _answer(self, recorded: Recorded, key: BatchKey) -> AnsweredAction:
        outcome, kind, receipt = recorded
        if isinstance(outcome, DeadLetter):
            raise refused(outcome.code, outcome.detail)
        if kind == "conflict":
            raise refused(codes.CONFLICTING_CONTENT, codes.MEANINGS[codes.CONFLICTING_CONTENT])
        if kind == "decision" and isinstance(outcome, BatchDecision) and outcome.action.value is not None:
            return AnsweredAction(outcome.action.value, again=False, receipt=receipt)
        found = await self.find(key)
        return AnsweredAction(found.action, again=True, receipt=found.receipt)

    async def find(self, key: BatchKey) -> RecordedAction:
        """Return the action event that is recorded for a batch. Raises `Problem` when there is none."""
        found = await self._standing(self.actions.action, key)
        if found is None:
            raise Problem(
                404,
                "unknown_batch",
                f"gate {key.gate} has decided no batch {key.batch_id!r}, attempt {key.attempt}",
            )
        return found

    async def recorded(self, key: BatchKey) -> RecordedBatch | None:
        """Return what is recorded of a batch; None where it is not decided. Raises `Problem` when that cannot be read."""
        return await self._standing(self.actions.recorded, key)

    async def _standing(self, read: Callable[[BatchKey], T | None], key: BatchKey) -> T | None:
        found = await self._reading(lambda: read(key))
        if found is None and key in await self._reading(lambda: self.actions.known([key])):
            found = await self._reading(lambda: read(key))  # perhaps it was decided between the two
            if found is None:
                raise Problem(
                    410,
                    "given_out",
                    f"gate {key.gate} decided batch {key.batch_id!r}, attempt {key.attempt}, so long ago"
                    " that its decision has left the database; `streamer audit show` names the file",
                )
        return found

    async def label(
        self, severities: Sequence[SeverityBody], deadline: Deadline, *, kind: str, timestamp_ms: int
    ) -> TakenLabels:
        """Record severities of one gate, whose kind is `kind`, all or, when the database does not answer in time, perhaps some: a repeat is safe.

        Raises `Problem` when they cannot be recorded, or not in time.
        """
        if not severities:
            return TakenLabels(0, 0, 0)
        self._admit(self.side, len(severities))
        *_, here = self.partitions
        asked = {
            self.side.submit(
                here, one.value, key=one.event.batch_id.encode(), headers=(), timestamp_ms=timestamp_ms
            )
            for one in severities
        }
        for answer in asked:
            recorded = await _first({answer}, until=deadline.at)
            if recorded is None:
                raise unavailable("not all of it was recorded in time; send it again")
            if isinstance(recorded.outcome, DeadLetter):
                raise refused(recorded.outcome.code, recorded.outcome.detail)
        revisions = [label_revision(one.event) for one in severities]
        unrecorded = await self._reading(lambda: self.labels.unrecorded(revisions))
        others = sum(one.kind != kind for one in revisions)
        return TakenLabels(len(revisions), len(unrecorded), others)

    async def refuse(
        self, value: bytes, bad: BadMessage, deadline: Deadline, *, timestamp_ms: int, labels: bool = False
    ) -> None:
        """Record a dead letter of a body that is nested too deeply: no mistake, but an attack or a broken program.

        Raises `Problem` when it cannot be recorded, or not in time.
        """
        if bad.code != codes.TOO_DEEPLY_NESTED:
            return
        lane = self.side if labels else self.main
        self._admit(lane)
        here = self.partitions[2 if labels else 0]
        asked = lane.submit(here, value, key=b"", headers=(), timestamp_ms=timestamp_ms)
        if await _first({asked}, until=deadline.at) is None:
            raise unavailable(_UNKNOWN)

    async def policy(self, gate: str, *, fresh: bool = False) -> Policy:
        """Return the newest policy of a gate. Raises `Problem` when there is no such gate.

        It is what was read last, at most ten seconds ago: enough for a decision, whose commit looks again. `fresh`: as it is
        on record now.
        """
        active = None if fresh else self.book.get(gate)
        if active is None:
            await self._reading(lambda: self.book.refresh([gate]))
            active = self.book.get(gate)
        if active is None:
            raise refused("unknown_gate", f"there is no gate {gate!r}; create it with `streamer gate create`")
        return active.policy

    async def judge(self, gate: str) -> tuple[str | None, str | None]:
        """Return the verdict on a gate's risk in service, in a word and in a sentence."""
        return await self._reading(lambda: self.judges(gate))

    def admit(self) -> None:
        """Refuse a batch that could not be taken now, before anything is spent on it. Raises `Problem`."""
        self._admit(self.main)

    def _admit(self, lane: Lane, requests: int = 1) -> None:
        if not self.reachable():
            raise unavailable(_AWAY)
        if lane.room() < requests:
            raise overloaded("batch_id")

    async def _reading(self, read: Callable[[], T]) -> T:
        return await reading(self.executor, read, _AWAY)


async def _first(answers: set[asyncio.Future[Recorded]], *, until: float) -> Recorded | None:
    """The first of these that is known, None at `until` on the event loop's clock."""
    left = until - asyncio.get_running_loop().time()
    done, _ = await asyncio.wait(answers, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED)
    try:
        return next((answer.result() for answer in done), None)
    except Ended:
        raise unavailable("the service ends; hold, and ask again with the same batch_id") from None
