"""What is done with a chat request: sampled once, decided at the desk, and answered from the record."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamer.errors import BadMessage
from streamer.events import codes, responses
from streamer.events.responses import ResponsesV1, ResponseV1
from streamer.gates.batch_key import BatchKey
from streamer.gates.settings import EXTERNAL_PREFIX
from streamer.journal import RecordedBatch
from streamer.scoring.scorers.logprob import Logprob
from streamer.serving.bodies import Batch
from streamer.serving.chat.request import OWN_METADATA, ChatProblem, ChatRequest
from streamer.serving.chat.sampler import Sampled, sampling_record
from streamer.serving.problems import RETRY_SECONDS, Problem, refused, unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from streamer.events.limits import Limits
    from streamer.gates.settings import GateSettings
    from streamer.journal import Headers
    from streamer.labels.llm.record import Choice
    from streamer.serving.chat.sampler import Sampler
    from streamer.serving.deadlines import Deadline
    from streamer.serving.desk import Desk

_UPSTREAM, _SAMPLING = OWN_METADATA
_LOGPROB = Logprob.of_event


class Completed(NamedTuple):
    """A decision on record; `again`: it was, before this request came."""

    batch: RecordedBatch
    again: bool


class ChatCounter:
    """Takes chat requests for the gates that have an upstream. For one event loop.

    Parameters
    ----------
    desk : decides and records, as it does for every other request.
    samplers : by gate.
    best_score : what a gate scores the best of some answers.
    limits : bounds for events.
    most, most_bytes : requests that may be under way, and the bytes of their bodies, >= 1; past either they are refused.
    """

    def __init__(
        self,
        desk: Desk,
        samplers: Mapping[str, Sampler],
        *,
        best_score: Callable[[GateSettings, Sequence[Choice]], Awaitable[float]],
        limits: Limits,
        most: int,
        most_bytes: int,
    ) -> None:
        self.samplers: Final = samplers
        self._desk = desk
        self._best_score = best_score
        self._limits = limits
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._under_way: Counter[BatchKey] = Counter()
        self._locks: dict[BatchKey, asyncio.Lock] = {}
        self._before_decision: set[asyncio.Timeout] = set()
        self._ends = False

    async def complete(
        self,
        request: ChatRequest,
        deadline: Deadline,
        *,
        idempotency_key: str | None,
        headers: Headers,
        timestamp_ms: int,
    ) -> Completed:
        """Sample answers, have them decided, and return what is on record; a repeat samples nothing.

        What cannot be sampled whole is recorded without answers, and so held.

        Raises
        ------
        Problem
            When it is refused, too much waits, or nothing could be recorded within the grace of its deadline.
        """
        sampler = self.samplers.get(request.gate)
        if sampler is None:
            raise ChatProblem(
                404,
                "model_not_found",
                f"gate {request.gate!r} has no upstream here; give it one in [upstreams.{request.gate}] of the settings",
                param="model",
            )
        request.check(sampler.upstream)
        settings = (await self._desk.policy(request.gate)).settings
        _check_gate(settings)
        key = BatchKey(request.gate, idempotency_key or str(uuid.uuid4()), 1)
        nothing = Sampled((), None, ())
        try:
            self._batch(key, request, nothing, sampler)  # what cannot be recorded is not paid for
        except BadMessage as bad:
            raise refused(bad.code, bad.detail) from None
        async with self._alone(key, deadline, request.size):
            if idempotency_key is not None:
                found = await self._desk.recorded(key)
                if found is not None:
                    return Completed(_same(found, request), again=True)
            self._desk.admit()
            async with self._unless_it_ends():
                sampled = await sampler.sample(
                    request.messages,
                    until=deadline.at,
                    best_score=partial(self._best_score, settings),
                    logprobs=settings.of_event == _LOGPROB,
                )
            batch = self._fitting(key, request, sampled, sampler)
            try:
                answer = await self._desk.decide(batch, deadline, headers=headers, timestamp_ms=timestamp_ms)
            except Problem as problem:
                if problem.code != codes.CONFLICTING_CONTENT:
                    raise
                answer = None
            if answer is None or answer.again:
                # Another instance, or another way in, was first; what it recorded stands.
                found = await self._desk.recorded(key)
                if found is None:
                    raise unavailable("the database does not answer; hold, and ask again")
                return Completed(_same(found, request), again=True)
            texts = {one.id: one.text for one in batch.event.responses}
            return Completed(RecordedBatch(answer.action, batch.event.metadata, texts), again=False)

    def cut_off(self) -> None:
        """Tell those whose answers are not there yet that nothing was decided, as long as they can be told."""
        self._ends = True
        for limit in self._before_decision:
            limit.reschedule(asyncio.get_running_loop().time())

    async def close(self) -> None:
        """Close the connections to the upstreams."""
        for sampler in self.samplers.values():
            await sampler.close()

    def _fitting(self, key: BatchKey, request: ChatRequest, sampled: Sampled, sampler: Sampler) -> Batch:
        """The batch of these answers; without them, where they are too large for one event together."""
        try:
            return self._batch(key, request, sampled, sampler)
        except BadMessage:
            return self._batch(key, request, Sampled((), "malformed_reply", sampled.calls), sampler)

    def _batch(self, key: BatchKey, request: ChatRequest, sampled: Sampled, sampler: Sampler) -> Batch:
        """Return the event of what was sampled. Raises `BadMessage`."""
        upstream = sampler.upstream
        own: dict[str, Any] = {
            _UPSTREAM: upstream.id,
            _SAMPLING: sampling_record(sampled, upstream, request.digest),
        }
        value = responses.encode_responses(
            ResponsesV1(
                schema=responses.SCHEMA,
                gate=key.gate,
                batch_id=key.batch_id,
                prompt=request.prompt,
                responses=tuple(
                    ResponseV1(id=str(number), text=answer.text, logprob=answer.logprob)
                    for number, answer in enumerate(sampled.answers, start=1)
                ),
                metadata={**request.metadata, **own},
            )
        )
        return Batch(responses.decode_responses(value, self._limits), value)

    @asynccontextmanager
    async def _unless_it_ends(self) -> AsyncIterator[None]:
        """Cut off what is done inside when the service ends."""
        limit = asyncio.timeout(0 if self._ends else None)
        try:
            async with limit:
                self._before_decision.add(limit)
                try:
                    yield
                finally:
                    self._before_decision.discard(limit)
        except TimeoutError:
            if not limit.expired():
                raise
            raise unavailable("the service ends; hold, and ask again with the same Idempotency-Key") from None

    @asynccontextmanager
    async def _alone(self, key: BatchKey, deadline: Deadline, size: int) -> AsyncIterator[None]:
        """No two requests of one key at a time: the second one finds what the first recorded."""
        if self._under_way.total() >= self._most or self._bytes + size > self._most_bytes:
            raise Problem(
                429,
                "overloaded",
                "too many requests wait already; hold, and ask again with the same Idempotency-Key",
                retry=RETRY_SECONDS,
            )
        self._under_way[key] += 1
        self._bytes += size
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            try:
                async with self._unless_it_ends(), asyncio.timeout_at(deadline.at):
                    await lock.acquire()
            except TimeoutError:
                raise unavailable(
                    "an earlier request with this Idempotency-Key is under way; hold, and ask again"
                ) from None
            try:
                yield
            finally:
                lock.release()
        finally:
            self._bytes -= size
            self._under_way[key] -= 1
            if not self._under_way[key]:
                del self._under_way[key], self._locks[key]


def _check_gate(settings: GateSettings) -> None:
    """Refuse a gate that could ship none of the answers, or whose answers could not be told again."""
    if settings.unit != "best":
        raise _unsuited(f"its unit is {settings.unit}; one answer is selected under the unit best alone")
    if settings.of_event not in (None, _LOGPROB) or settings.encoder.startswith(EXTERNAL_PREFIX):
        raise _unsuited("its scores or embeddings come with the batch, and sampled answers bring none")
    if not settings.keep_texts:
        raise _unsuited("it keeps no texts, and a repeat could not be answered")


def _unsuited(why: str) -> ChatProblem:
    return ChatProblem(400, "unsuited_gate", f"this gate cannot answer chat requests: {why}", param="model")


def _same(found: RecordedBatch, request: ChatRequest) -> RecordedBatch:
    """What is recorded, if it answers this request. Raises `Problem` where it answers another one."""
    sampling: Any = {} if found.metadata is None else found.metadata.get(_SAMPLING, {})
    if found.metadata is not None and (
        not isinstance(sampling, dict) or sampling.get("request") != request.digest.hex()
    ):
        raise refused(
            codes.CONFLICTING_CONTENT,
            "this Idempotency-Key was decided already, with other content; that decision stands",
        )
    return found
