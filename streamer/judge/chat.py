"""One question to a chat endpoint, put again for as long as the endpoint is busy, failing or away."""

from __future__ import annotations

import asyncio
import email.utils
import importlib
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from streamer.errors import UsageError
from streamer.events.excerpts import one_line
from streamer.judge.record import Exchange, TokenUsage
from streamer.redaction import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from streamer.judge.endpoint import JudgeEndpoint
    from streamer.judge.record import FailureCode
    from streamer.judge.rubric import Message

_PASSING: frozenset[FailureCode] = frozenset({"rate_limited", "server_error", "timed_out", "unreachable"})
_NO_KEY = "none"
"""Sent to an endpoint that asks for no key; the client insists on one."""


class _Failed(Exception):
    """One request came to nothing."""

    def __init__(self, problem: FailureCode, detail: str, wait: float | None = None) -> None:
        super().__init__(detail)
        self.problem = problem
        self.detail = detail
        self.wait = wait


class Chat:
    """Asks a chat endpoint through the package `openai`, whose own retries are off: each try is on record here.

    Parameters
    ----------
    endpoint : where and how.
    sleep : waits that many seconds.
    jitter : a number in [0, 1), new at each call.
    clock : seconds, from any start.

    Raises
    ------
    UsageError : the extra is not installed.
    """

    def __init__(
        self,
        endpoint: JudgeEndpoint,
        *,
        sleep: Callable[[float], Awaitable[None]],
        jitter: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._openai = _openai()
        self._endpoint = endpoint
        self._sleep = sleep
        self._jitter = jitter
        self._clock = clock
        self._slots = asyncio.Semaphore(endpoint.concurrency)
        self._client = self._openai.AsyncOpenAI(
            base_url=endpoint.base_url,
            api_key=endpoint.api_key or _NO_KEY,
            timeout=endpoint.timeout,
            max_retries=0,
        )
        # The client takes these from the environment and would send them to whatever endpoint it is.
        self._client.organization = self._client.project = None

    async def ask(self, messages: tuple[Message, ...]) -> tuple[Exchange, ...]:
        """Ask until a reply comes, the case is refused, or the tries are used up.

        Returns
        -------
        tuple of Exchange
            Every try, at least one. The last one holds the reply, or the problem.

        Raises
        ------
        UsageError
            The endpoint takes no request at all: wrong key, unknown model, no credit left.
        """
        exchanges: list[Exchange] = []
        for failed in range(self._endpoint.tries):
            async with self._slots:
                exchange, wait = await self._try(messages)
            exchanges.append(exchange)
            if exchange.problem not in _PASSING or failed + 1 == self._endpoint.tries:
                break
            await self._sleep(self._delay(failed, wait))
        return tuple(exchanges)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _try(self, messages: tuple[Message, ...]) -> tuple[Exchange, float | None]:
        """One request; with it, how long the endpoint wants to be left alone, in seconds."""
        began = self._clock()
        parameters = self._endpoint.parameters
        try:
            completion = await self._complete(messages)
            answered = _answered(completion)
        except _Failed as failed:
            return (
                Exchange(
                    messages=messages,
                    parameters=parameters,
                    problem=failed.problem,
                    detail=self._shown(failed.detail),
                    seconds=self._clock() - began,
                ),
                failed.wait,
            )
        exchange = Exchange(
            messages=messages, parameters=parameters, seconds=self._clock() - began, **answered
        )
        return exchange, None

    async def _complete(self, messages: tuple[Message, ...]) -> Any:
        openai = self._openai
        try:
            # The client's own timeout starts anew with every piece that arrives; this one does not.
            async with asyncio.timeout(self._endpoint.timeout):
                return await self._client.chat.completions.create(
                    messages=[{"role": message.role, "content": message.content} for message in messages],
                    **self._endpoint.parameters,
                )
        except (TimeoutError, openai.APITimeoutError):
            raise _Failed("timed_out", f"no reply within {self._endpoint.timeout:g} s") from None
        except openai.APIStatusError as error:
            raise self._of_status(error) from None
        except openai.APIConnectionError as error:
            raise _Failed("unreachable", f"{error.message} {error.__cause__ or ''}".strip()) from None
        except (openai.OpenAIError, ValueError) as error:
            raise _Failed("server_error", f"the reply is not a chat completion: {error}") from None

    def _of_status(self, error: Any) -> _Failed:
        status: int = error.status_code
        detail = f"{status}: {error.message.removeprefix(f'Error code: {status} - ')}"
        if status in (401, 403, 404) or error.code == "insufficient_quota":
            raise UsageError(
                f"the judge's endpoint refuses every request ({self._shown(detail)}): check base_url, model, api_key "
                "and the account's credit"
            )
        wait = _wanted_wait(error.response.headers, now=datetime.now(UTC))
        if status == 429:
            return _Failed("rate_limited", detail, wait)
        if status >= 500 or status in (408, 409, 425):
            return _Failed("server_error", detail, wait)
        return _Failed("rejected", detail)

    def _delay(self, failed: int, wanted: float | None) -> float:
        """Seconds to wait after `failed` + 1 failures, never less than half of the doubling delay."""
        endpoint = self._endpoint
        delay = min(endpoint.first_delay * 2.0 ** min(failed, 60), endpoint.longest_delay)
        delay *= 0.5 + 0.5 * self._jitter()
        return delay if wanted is None else max(delay, min(wanted, endpoint.longest_delay))

    def _shown(self, detail: str) -> str:
        key = self._endpoint.api_key
        return one_line(detail.replace(key, HIDDEN) if key else detail)


def _openai() -> Any:
    try:
        return importlib.import_module("openai")
    except ImportError as error:
        raise UsageError(
            "the judge needs the package openai: pip install 'conformal-streamer[judge]'"
        ) from error


def _answered(completion: Any) -> dict[str, Any]:
    """The fields of an exchange that a completion fills. Endpoints that merely resemble OpenAI's leave some out."""
    try:
        (choice, *_) = completion.choices
        content, refusal = choice.message.content, getattr(choice.message, "refusal", None)
        finish_reason = choice.finish_reason
    except (AttributeError, TypeError, ValueError):
        raise _Failed("server_error", "the reply is not a chat completion") from None
    answered: dict[str, Any] = {
        "reply": content if isinstance(content, str) else "",
        "model": _text(getattr(completion, "model", None)),
        "fingerprint": _text(getattr(completion, "system_fingerprint", None)),
        "finish_reason": _text(finish_reason),
        "usage": _usage(getattr(completion, "usage", None)),
    }
    if refusal or finish_reason == "content_filter":
        why = one_line(refusal) if isinstance(refusal, str) and refusal else "stopped by the content filter"
        answered |= {"problem": "refused", "detail": f"the model would not judge this: {why}"}
    return answered


def _usage(usage: Any) -> TokenUsage | None:
    prompt, completion = getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None)
    if isinstance(prompt, int) and isinstance(completion, int) and min(prompt, completion) >= 0:
        return TokenUsage(prompt, completion)
    return None


def _text(value: object) -> str | None:
    return one_line(value) if isinstance(value, str) else None


def _wanted_wait(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """Seconds that a reply's headers ask to wait, >= 0: ``retry-after-ms``, or ``retry-after`` in seconds or a date."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * scale
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(seconds, 0.0)
    try:
        until = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
        return max((until - now).total_seconds(), 0.0)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
