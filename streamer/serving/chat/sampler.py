"""Asks an upstream for a request's answers: all that its rule wants or none, until a deadline, with a record of every call."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import asdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import structlog

from streamer.errors import UsageError
from streamer.gates import free_text
from streamer.labels.llm.client import Chat
from streamer.labels.llm.record import Exchange, FailureCode, Message, cost_of
from streamer.tracing import NO_TRACING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from streamer.labels.llm.record import Choice
    from streamer.serving.chat.rungs import HandsOn
    from streamer.serving.chat.upstream import Upstream
    from streamer.tracing import Tracing

    BestScore = Callable[[Sequence[Choice]], Awaitable[float]]

log = structlog.get_logger(__name__)

_ESSENTIAL: Final = frozenset({"temperature", "top_p"})
"""Without one of these the answers would be those of other settings than the upstream's."""


Problem = FailureCode | Literal["cached", "not_scored"]


class Sampled(NamedTuple):
    """What came: as many answers as the upstream's rule wants, or none and the problem; and every call.

    `looks` are the numbers of answers at which the rule looked at the best score, and that score.
    """

    answers: tuple[Choice, ...]
    problem: Problem | None
    calls: tuple[Exchange, ...]
    looks: tuple[tuple[int, float], ...] = ()


class Sampler:
    """Samples from one upstream. For one event loop; call `close` at the end.

    Parameters
    ----------
    max_text_bytes : most bytes of UTF-8 in one answer.
    count_cached : told of the replies in a batch that a cache had.
    tracing : records each request to the upstream.

    Raises
    ------
    UsageError : the extra ``judge`` is not installed.
    """

    def __init__(
        self,
        upstream: Upstream,
        *,
        max_text_bytes: int,
        count_cached: Callable[[int], None] = lambda _replies: None,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self.upstream: Final = upstream
        self._count_cached = count_cached
        self._chat = Chat(
            upstream,
            sleep=asyncio.sleep,
            jitter=random.random,
            clock=time.monotonic,
            essential=_ESSENTIAL,
            tracing=tracing,
        )
        self._chat.most_text = max_text_bytes

    async def sample(
        self,
        messages: tuple[Message, ...],
        *,
        until: float,
        best_score: BestScore,
        more: Mapping[str, object] = MappingProxyType({}),
        earlier: tuple[Choice, ...] = (),
    ) -> Sampled:
        """Ask for answers to these messages, as many as the rule wants, until that time on the event loop's clock.

        `best_score` is asked about the answers so far at each step of the rule but the last one. `more`: parameters of
        each request besides the upstream's. `earlier` ones, of another upstream, go before them there and in what is
        returned; the rule does not count them.
        """
        if self.upstream.system_prompt is not None:
            messages = (Message("system", self.upstream.system_prompt), *messages)
        calls: list[Exchange] = []
        answers: list[Choice] = []
        looks: list[tuple[int, float]] = []
        problem: Problem | None
        try:
            async with asyncio.timeout_at(until):
                problem = await self._until_sure(
                    messages,
                    answers,
                    looks,
                    calls.append,
                    lambda own: best_score([*earlier, *own]),
                    more,
                    until,
                )
        except TimeoutError:
            problem = "timed_out"
        if cached := sum(_cached(calls)):
            self._count_cached(cached)
            if self.upstream.cached == "hold":
                problem = problem or "cached"
        if problem is not None:
            # What an upstream says of a request may quote it: that is for the record alone.
            log.warning("chat.not_sampled", upstream=self.upstream.id, problem=problem, calls=len(calls))
            return Sampled((), problem, tuple(calls), tuple(looks))
        return Sampled((*earlier, *answers), None, tuple(calls), tuple(looks))

    async def close(self) -> None:
        """Close the connections."""
        await self._chat.close()

    async def _until_sure(
        self,
        messages: tuple[Message, ...],
        answers: list[Choice],
        looks: list[tuple[int, float]],
        record: Callable[[Exchange], None],
        best_score: BestScore,
        more: Mapping[str, object],
        until: float,
    ) -> Problem | None:
        """Add answers until the rule has enough; return what went wrong."""
        rule = self.upstream.rule
        *steps, most = rule.sizes
        for size in steps:
            problem = await self._fill(messages, size, answers, record, more, until)
            if problem is not None:
                return problem
            try:
                best = await best_score(answers)
            except Exception:
                log.warning("chat.not_scored", upstream=self.upstream.id, exc_info=True)
                return "not_scored"
            looks.append((size, best))
            if rule.enough(size, best):
                return None
        return await self._fill(messages, most, answers, record, more, until)

    async def _fill(
        self,
        messages: tuple[Message, ...],
        wanted: int,
        answers: list[Choice],
        record: Callable[[Exchange], None],
        more: Mapping[str, object],
        until: float,
    ) -> FailureCode | None:
        """Add answers until there are as many as wanted; return what went wrong.

        An upstream that gives fewer than requested gets another request for the rest, and none is larger than what it gave.
        """
        at_once = self.upstream.per_request or wanted
        while (missing := wanted - len(answers)) > 0:
            sizes = [min(at_once, missing - start) for start in range(0, missing, at_once)]
            replies = await asyncio.gather(
                *(self._ask(messages, size, record, more, until) for size in sizes)
            )
            for choices, problem in replies:
                if problem is not None:
                    return problem
                answers.extend(choices[: wanted - len(answers)])
            at_once = min(at_once, max(len(choices) for choices, _ in replies))
        return None

    async def _ask(
        self,
        messages: tuple[Message, ...],
        size: int,
        record: Callable[[Exchange], None],
        more: Mapping[str, object],
        until: float,
    ) -> tuple[tuple[Choice, ...], FailureCode | None]:
        parameters = {**self.upstream.sent, **more, **({"n": size} if size > 1 else {})}
        try:
            *_, last = await self._chat.ask(messages, parameters, record=record, until=until)
        except UsageError as error:
            log.error("chat.upstream_refuses", upstream=self.upstream.id, reason=str(error))
            return (), "rejected"
        if last.problem is not None:
            return (), last.problem
        for choice in last.choices:
            if choice.refusal is not None:
                return (), "refused"
            if free_text.fault(choice.text, len(choice.text)) is not None:
                return (), "malformed_reply"
        return last.choices, None


def sampling_record(
    sampled: Sampled,
    upstream: Upstream,
    request: bytes,
    *,
    ignored: Mapping[str, object],
    hands_on: HandsOn | None = None,
) -> dict[str, Any]:
    """Return what is kept with a batch about how its answers were made, as plain JSON values.

    Parameters
    ----------
    request : SHA-256 of the messages.
    ignored : the caller's sampling parameters that are not the upstream's.
    hands_on : what another gate is to be asked about; None: nothing.
    """
    counted = [call.usage for call in sampled.calls if call.reply is not None]
    known = [usage for usage in counted if usage is not None]
    all_known = bool(known) and len(known) == len(counted)
    read, written = sum(usage.prompt for usage in known), sum(usage.completion for usage in known)
    looks = [{"answers": answers, "best_score": best} for answers, best in sampled.looks]
    return {
        "request": request.hex(),
        "settings": upstream.settings,
        **({"ignored": dict(ignored)} if ignored else {}),
        **({"steps": looks} if upstream.steps else {}),
        **({} if hands_on is None else {"hands_on": asdict(hands_on)}),
        "problem": sampled.problem,
        "finish_reasons": [answer.finish_reason for answer in sampled.answers],
        "input_tokens": read if all_known else None,
        "output_tokens": written if all_known else None,
        "cost": _cost(sampled.calls, upstream),
        "calls": [
            _call(call, upstream, cached=cached)
            for call, cached in zip(sampled.calls, _cached(sampled.calls), strict=True)
        ],
    }


def _cached(calls: Sequence[Exchange]) -> list[bool]:
    """Which of these calls brought what a cache had, or what another of them brought: no samples of their own.

    The choices of one reply are samples, wherever it was kept.
    """
    answered = [call for call in calls if call.reply is not None]
    ids = Counter(call.id for call in answered if call.id is not None)
    return [
        len(answered) > 1 and call.reply is not None and (call.cached or ids[call.id or ""] > 1)
        for call in calls
    ]


def _call(call: Exchange, upstream: Upstream, *, cached: bool) -> dict[str, Any]:
    return {
        "parameters": dict(call.parameters),
        "id": call.id,
        "cached": cached,
        "model": call.model,
        "fingerprint": call.fingerprint,
        "answers": len(call.choices),
        "input_tokens": None if call.usage is None else call.usage.prompt,
        "output_tokens": None if call.usage is None else call.usage.completion,
        "cost": _cost((call,), upstream),
        "problem": call.problem,
        "detail": call.detail,
        "seconds": round(call.seconds, 3),
    }


def _cost(calls: tuple[Exchange, ...], upstream: Upstream) -> float | None:
    cost = cost_of(calls, upstream.price)
    return None if cost is None else float(cost)
