"""Asks an upstream for a request's answers: all that its rule wants or none, until a deadline, with a record of every call."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import structlog

from streamer.errors import UsageError
from streamer.gates import free_text
from streamer.labels.llm.client import Chat
from streamer.labels.llm.record import Choice, Exchange, FailureCode, Message, cost_of
from streamer.serving.chat.forms import CALLED
from streamer.serving.chat.request import FORM, ChatRequest
from streamer.serving.chat.rungs import HandsOn
from streamer.serving.chat.upstream import Upstream
from streamer.tracing import NO_TRACING, Tracing

BestScore = Callable[[Sequence[Choice]], Awaitable[float]]


log = structlog.get_logger(__name__)

_ESSENTIAL: Final = frozenset({"temperature", "top_p", "response_format", "tools", "tool_choice"})
"""Without one of these the answers would be those of other settings than the upstream's."""


Problem = FailureCode | Literal["cached", "not_scored", "unreadable", "passed_through"]


class Sampled(NamedTuple):
    """What came: as many answers as the upstream's rule wants, or none and the problem; and every call.

    `looks` are the numbers of answers at which the rule looked at the best score, and that score; `unread` counts answers that were not
    of the form that was asked for; `passed` are calls that go out unjudged.
    """

    answers: tuple[Choice, ...]
    problem: Problem | None
    calls: tuple[Exchange, ...]
    looks: tuple[tuple[int, float], ...] = ()
    unread: int = 0
    passed: str = ""


class Sampler:
    """Samples from one upstream, at most `max_text_bytes` of UTF-8 an answer. For one event
    loop; call `close` at the end. `count_cached` is told of the replies in a batch that a cache
    had; `tracing` records each request. Raises `UsageError` where the extra ``judge`` is not
    installed."""

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
        request: ChatRequest,
        *,
        until: float,
        best_score: BestScore,
        more: Mapping[str, object] = MappingProxyType({}),
        earlier: tuple[Choice, ...] = (),
    ) -> Sampled:
        """Ask for answers to a request, as many as the rule wants, until that time on the event loop's clock.

        `best_score` is asked about the answers so far at each step of the rule but the last one. `more`: parameters of
        each request besides the upstream's and the caller's form. `earlier` ones, of another upstream, go before them there and in
        what is returned; the rule does not count them.
        """
        system = self.upstream.system_prompt
        asking = _Asking(
            messages=(*(() if system is None else (Message("system", system),)), *request.messages),
            parameters={**self.upstream.sent, **more, **request.form},
            read=request.as_answer,
            best_score=lambda own: best_score([*earlier, *own]),
            until=until,
        )
        problem: Problem | None
        try:
            async with asyncio.timeout_at(until):
                problem = await self._until_sure(asking, passing=bool(request.tools))
        except TimeoutError:
            problem = "timed_out"
        calls = asking.calls
        if cached := sum(_cached(calls)):
            self._count_cached(cached)
            if self.upstream.cached == "hold":
                problem = problem or "cached"
        found = Sampled((), problem, tuple(calls), tuple(asking.looks), asking.unread)
        if problem == "passed_through":
            return found._replace(passed=asking.answers[0].text)
        if problem is not None:
            # What an upstream says of a request may quote it: that is for the record alone.
            log.warning("chat.not_sampled", upstream=self.upstream.id, problem=problem, calls=len(calls))
            return found
        return found._replace(answers=(*earlier, *asking.answers))

    async def close(self) -> None:
        """Close the connections."""
        await self._chat.close()

    async def _until_sure(self, asking: _Asking, *, passing: bool) -> Problem | None:
        """Add answers until the rule has enough; return what went wrong. `passing`: whether the first one may be a call."""
        upstream, rule = self.upstream, self.upstream.rule
        if passing and upstream.tools == "pass-through":
            if (problem := await self._fill(asking, 1)) is not None:
                return problem
            if asking.answers[0].finish_reason == CALLED:
                return "passed_through"
            asking.texts_alone = True
        *steps, most = rule.sizes
        for size in steps:
            problem = await self._fill(asking, size)
            if problem is not None:
                return problem
            try:
                best = await asking.best_score(asking.answers)
            except Exception:
                log.warning("chat.not_scored", upstream=upstream.id, exc_info=True)
                return "not_scored"
            asking.looks.append((size, best))
            if rule.enough(size, best):
                return None
        return await self._fill(asking, most)

    async def _fill(self, asking: _Asking, wanted: int) -> Problem | None:
        """Add answers until there are as many as wanted; return what went wrong.

        An upstream that gives fewer than requested gets another request for the rest, and none is larger than what it gave. So do
        answers that cannot be read, as many as it resamples.
        """
        at_once = self.upstream.per_request or wanted
        while (missing := wanted - len(asking.answers)) > 0:
            sizes = [min(at_once, missing - start) for start in range(0, missing, at_once)]
            replies = await asyncio.gather(*(self._ask(asking, size) for size in sizes))
            for choices, problem in replies:
                if problem is not None:
                    return problem
                taken = choices[: wanted - len(asking.answers)]
                read = [one for one in map(asking.read, taken) if one is not None]
                if asking.texts_alone:
                    read = [one for one in read if one.finish_reason != CALLED]
                asking.unread += len(taken) - len(read)
                asking.answers.extend(read)
            if asking.unread > self.upstream.resample:
                return "unreadable"
            at_once = min(at_once, max(len(choices) for choices, _ in replies))
        return None

    async def _ask(self, asking: _Asking, size: int) -> tuple[tuple[Choice, ...], FailureCode | None]:
        parameters = {**asking.parameters, **({"n": size} if size > 1 else {})}
        try:
            *_, last = await self._chat.ask(
                asking.messages, parameters, record=asking.calls.append, until=asking.until
            )
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


@dataclass(slots=True, kw_only=True)
class _Asking:
    """What is asked for one request, and what came.

    `read` makes an answer of a choice, None where it has not the form that was asked for; `unread` counts these. `texts_alone`: a call
    is no answer.
    """

    messages: tuple[Message, ...]
    parameters: Mapping[str, object]
    read: Callable[[Choice], Choice | None]
    best_score: BestScore
    until: float
    calls: list[Exchange] = field(default_factory=list)
    answers: list[Choice] = field(default_factory=list)
    looks: list[tuple[int, float]] = field(default_factory=list)
    unread: int = 0
    texts_alone: bool = False


def sampling_record(
    sampled: Sampled, upstream: Upstream, request: ChatRequest, *, hands_on: HandsOn | None = None
) -> dict[str, Any]:
    """Return what is kept with a batch about how its answers were made, as plain JSON values.

    `hands_on` : what another gate is to be asked about; None: nothing.
    """
    ignored = request.ignored(upstream)
    counted = [call.usage for call in sampled.calls if call.reply is not None]
    known = [usage for usage in counted if usage is not None]
    all_known = bool(known) and len(known) == len(counted)
    read, written = sum(usage.prompt for usage in known), sum(usage.completion for usage in known)
    looks = [{"answers": answers, "best_score": best} for answers, best in sampled.looks]
    return {
        "request": request.digest.hex(),
        "settings": upstream.settings,
        **({"ignored": ignored} if ignored else {}),
        **({"schema": request.schema} if request.schema != "text" else {}),
        **({"form": request.form} if request.form else {}),
        **({"unread": sampled.unread} if sampled.unread else {}),
        **({"passed": sampled.passed} if sampled.passed else {}),
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
        "parameters": {name: one for name, one in call.parameters.items() if name not in FORM},
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
