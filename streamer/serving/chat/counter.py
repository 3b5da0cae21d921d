"""What is done with a chat request: sampled once, decided by the gate, and answered from the record."""

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from streamer.errors import BadMessage
from streamer.events import codes, responses
from streamer.events.limits import Limits
from streamer.events.responses import ResponsesV1, ResponseV1
from streamer.gates.batch_key import BatchKey
from streamer.gates.settings import GateSettings
from streamer.journal import Headers, RecordedBatch
from streamer.labels.llm.record import Choice
from streamer.serving.bodies import BatchBody
from streamer.serving.chat.request import OWN_METADATA, ChatProblem, ChatRequest, no_model
from streamer.serving.chat.rungs import Handed, HandsOn, handed, handed_on
from streamer.serving.chat.sampler import Sampled, Sampler, sampling_record
from streamer.serving.chat.suitable import of_one_origin, token_numbers, unsuited
from streamer.serving.chat.upstream import Upstream
from streamer.serving.deadline import Deadline
from streamer.serving.problems import overloaded, refused, unavailable
from streamer.serving.request_log import RequestLog

_UPSTREAM, _SAMPLING = OWN_METADATA


class Completed(NamedTuple):
    """The decision on record that is the last word. `again`: it was on record before this
    request came. `earlier` is what gates recorded that handed the request on."""

    batch: RecordedBatch
    again: bool
    earlier: tuple[RecordedBatch, ...] = ()


class ChatCounter:
    """Takes chat requests for the gates that have an upstream. For one event loop.

    The request log decides and records, as it does for every other request. `samplers` are by gate;
    a gate that is `then` of another one is asked only about what that one hands on. `best_score` is
    what a gate scores the best of some answers. Past `most` requests under way, or `most_bytes` of
    their bodies, >= 1, others are refused.
    """

    def __init__(
        self,
        request_log: RequestLog,
        samplers: Mapping[str, Sampler],
        *,
        best_score: Callable[[GateSettings, Sequence[Choice]], Awaitable[float]],
        limits: Limits,
        most: int,
        most_bytes: int,
    ) -> None:
        self.samplers: Final = samplers
        self._before: Final = {
            one.upstream.then: gate for gate, one in samplers.items() if one.upstream.then is not None
        }
        self._log = request_log
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
        """Sample answers, have them decided, and return what is on record; a repeat samples
        nothing.

        What cannot be sampled whole is recorded without answers, and so held. What a gate hands on
        is asked of the next one, under the same batch id. Raises `Problem` when it is refused, too
        much waits, or nothing could be recorded within the grace of its deadline.
        """
        await self._check(request)
        batch_id = idempotency_key or str(uuid.uuid4())
        async with self._alone(BatchKey(request.gate, batch_id, 1), deadline, request.size):
            asked, before, earlier = [request.gate], None, list[RecordedBatch]()
            while True:
                sampler, settings = await self._rung(asked[-1])
                recorded, again = await self._decided(
                    BatchKey(asked[-1], batch_id, 1),
                    request,
                    deadline,
                    sampler=sampler,
                    settings=settings,
                    before=before,
                    known=idempotency_key is not None,
                    headers=headers,
                    timestamp_ms=timestamp_ms,
                )
                before = handed(recorded)
                if before is None or before.to in asked:
                    return Completed(recorded, again, tuple(earlier))
                asked.append(before.to)
                earlier.append(recorded)

    def is_later(self, gate: str) -> bool:
        """Whether a gate is asked only about what another one hands on."""
        return gate in self._before

    async def _check(self, request: ChatRequest) -> None:
        """Refuse what one of the gates that may be asked could not answer. Raises `Problem`."""
        if self.is_later(request.gate):
            raise ChatProblem(
                404,
                "model_not_found",
                f"gate {request.gate!r} is asked only about what {self._before[request.gate]!r} hands on; ask "
                f"gate/{self._before[request.gate]}",
                param="model",
            )
        gate: str | None = request.gate
        front: tuple[str, Upstream, GateSettings] | None = None
        while gate is not None:
            sampler, settings = await self._rung(gate)
            upstream = sampler.upstream
            request.check(upstream)
            if front is not None:
                upstream = handed_on(front[1], upstream, front[0], front[2])
            _check_gate(gate, settings, upstream)
            front, gate = (gate, upstream, settings), upstream.then

    async def _rung(self, gate: str) -> tuple[Sampler, GateSettings]:
        """What is sampled for a gate, and its settings. Raises `Problem`."""
        sampler = self.samplers.get(gate)
        if sampler is None:
            raise no_model(gate)
        return sampler, (await self._log.policy(gate)).settings

    async def _decided(
        self,
        key: BatchKey,
        request: ChatRequest,
        deadline: Deadline,
        *,
        sampler: Sampler,
        settings: GateSettings,
        before: Handed | None,
        known: bool,
        headers: Headers,
        timestamp_ms: int,
    ) -> tuple[RecordedBatch, bool]:
        """Return what one gate has on record about a request, and whether it had before this request came.

        `known` : whether the caller chose the key, so that it may be on record.
        """
        upstream = sampler.upstream
        if before is not None:  # what hands prompts on to it is part of how its answers are made
            upstream = replace(upstream, after=before.after)
        make = partial(self._batch, key, request, upstream=upstream, hands_on=_hands_on(upstream, settings))
        try:
            make(Sampled((), None, ()))  # what cannot be recorded is not paid for
        except BadMessage as bad:
            raise refused(bad.code, bad.detail) from None
        if known:
            found = await self._log.recorded(key)
            if found is not None:
                return _same(found, request), True
        self._log.admit()
        taken = before.answers if before is not None and upstream.with_earlier else ()
        if settings.mode == "enforce" and settings.upstream not in (None, upstream.id):
            sampled = Sampled((), None, ())  # held whatever they say, and drawn for nobody
        else:
            async with self._unless_it_ends():
                sampled = await sampler.sample(
                    request,
                    until=deadline.at,
                    best_score=partial(self._best_score, settings),
                    more=token_numbers(settings),
                    earlier=taken,
                )
        batch = _fitting(make, sampled)
        headers = (*headers, (responses.REQUEST_HEADER, request.digest.hex().encode()))
        answer = await self._log.decide(batch, deadline, headers=headers, timestamp_ms=timestamp_ms)
        if answer.again:
            # Another instance was first; what it recorded stands.
            found = await self._log.recorded(key)
            if found is None:
                raise unavailable("the database does not answer; hold, and ask again")
            return _same(found, request), True
        texts = {one.id: one.text for one in batch.event.responses}
        return RecordedBatch(answer.action, batch.event.metadata, texts, answer.receipt), False

    def cut_off(self) -> None:
        """Tell those whose answers are not there yet that nothing was decided, as long as they can be told."""
        self._ends = True
        for limit in self._before_decision:
            limit.reschedule(asyncio.get_running_loop().time())

    async def close(self) -> None:
        """Close the connections to the upstreams."""
        for sampler in self.samplers.values():
            await sampler.close()

    def _batch(
        self,
        key: BatchKey,
        request: ChatRequest,
        sampled: Sampled,
        *,
        upstream: Upstream,
        hands_on: HandsOn | None,
    ) -> BatchBody:
        """Return the event of what was sampled. Raises `BadMessage`."""
        own: dict[str, Any] = {
            _UPSTREAM: upstream.id,
            _SAMPLING: sampling_record(sampled, upstream, request, hands_on=hands_on),
        }
        value = responses.encode_responses(
            ResponsesV1(
                schema=responses.SCHEMA,
                gate=key.gate,
                batch_id=key.batch_id,
                prompt=request.prompt,
                responses=tuple(
                    ResponseV1(
                        id=str(number), text=answer.text, logprob=answer.logprob, signals=answer.token_figures
                    )
                    for number, answer in enumerate(sampled.answers, start=1)
                ),
                metadata={**request.metadata, **own},
            )
        )
        return BatchBody(responses.decode_responses(value, self._limits), value)

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
            raise overloaded("Idempotency-Key")
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


def _fitting(make: Callable[[Sampled], BatchBody], sampled: Sampled) -> BatchBody:
    """The batch of these answers; without them, where they are too large for one event together."""
    try:
        return make(sampled)
    except BadMessage:
        return make(Sampled((), "malformed_reply", sampled.calls))


def _hands_on(upstream: Upstream, settings: GateSettings) -> HandsOn | None:
    if upstream.then is None or settings.floor is None:
        return None
    return HandsOn(upstream.then, upstream.then_from, settings.floor)


def _check_gate(gate: str, settings: GateSettings, upstream: Upstream) -> None:
    if (why := unsuited(settings, upstream)) is not None:
        raise _unsuited(why)
    if not of_one_origin(settings):
        each = f" (--segment-by {_UPSTREAM}: each version of its settings has a threshold of its own)"
        raise _unsuited(
            "its threshold is for answers of any origin, and must be for those of this upstream, as it is set. "
            f"`streamer gate set {gate} --upstream {upstream.id}` makes it so{'' if settings.unit == 'claim' else each}, and closes "
            "the gate until it is calibrated for it"
        )


def _unsuited(why: str) -> ChatProblem:
    return ChatProblem(400, "unsuited_gate", f"this gate cannot answer chat requests: {why}", param="model")


def _same(found: RecordedBatch, request: ChatRequest) -> RecordedBatch:
    """What is recorded, if it answers this request. Raises `Problem` where it answers another one."""
    if found.metadata is not None and responses.sampled_for(found.metadata) != request.digest.hex():
        raise refused(
            codes.CONFLICTING_CONTENT,
            "this Idempotency-Key was decided already, with other content; that decision stands",
        )
    return found
