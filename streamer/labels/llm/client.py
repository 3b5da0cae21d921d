"""One question to an endpoint, repeated while the endpoint is busy, failing or unavailable."""

import asyncio
import email.utils
import json
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from streamer.errors import UsageError
from streamer.events.excerpts import one_line
from streamer.extras import needed_by
from streamer.labels.llm.completions import completion_of, refusal_of
from streamer.labels.llm.endpoint import ChatEndpoint
from streamer.labels.llm.pace import Pace
from streamer.labels.llm.record import PASSING, Exchange, FailureCode, Message
from streamer.labels.llm.refusals import fitted, refused_parameter
from streamer.security.visible import HIDDEN
from streamer.tracing import NO_TRACING, Tracing
from streamer_client.door import MOST_BYTES, Door, Reply, ReplyFailed

_OF_EVERY_REQUEST = frozenset({401, 402, 403, 404})
_OF_EVERY_REQUEST_BY_CODE = frozenset({"insufficient_quota", "model_not_found", "invalid_api_key"})


class RequestFailed(Exception):
    """One request failed; with `parameter`, because the model does not take that one."""

    def __init__(
        self,
        problem: FailureCode,
        detail: str,
        wait: float | None = None,
        parameter: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.problem = problem
        self.detail = detail
        self.wait = wait
        self.parameter = parameter


class NothingSent(Exception):
    """No request of a question was sent: its caller allowed none."""


@dataclass(eq=False)
class LLMClient(ABC):
    """Asks an endpoint through `streamer_client.door`; each try is on record here.

    `path` is under the endpoint's `base_url`; `most` are bytes of a reply. `sleep` waits that many
    seconds; `jitter` is a number in [0, 1), new at each call; `clock` has seconds, from any start.
    `pace` gives each request its turn; None where there is no bound. No request goes without the
    parameters that are `essential` : a model that does not take one of them rejects the request.
    `tracing` records each request. Raises `UsageError` when the extra is not installed.
    """

    path: ClassVar[str]
    most: ClassVar[int]

    endpoint: ChatEndpoint
    _: KW_ONLY
    sleep: Callable[[float], Awaitable[None]]
    jitter: Callable[[], float]
    clock: Callable[[], float]
    pace: Pace | None = None
    essential: frozenset[str] = frozenset()
    tracing: Tracing = NO_TRACING

    def __post_init__(self) -> None:
        with needed_by("asking a language model", "judge"):
            self._door = Door(self.most)
        self._slots = asyncio.Semaphore(self.endpoint.concurrency)
        self._not_taken: frozenset[str] = frozenset()
        self._waiting: set[asyncio.Task[Any]] = set()
        self._winding_down = False

    @property
    def not_taken(self) -> frozenset[str]:
        """Parameters that the model refused and then answered without; they are no longer sent."""
        return self._not_taken

    async def ask(
        self,
        messages: tuple[Message, ...],
        parameters: Mapping[str, object],
        *,
        tokens: int = 0,
        record: Callable[[Exchange], None] | None = None,
        allowed: Callable[[], bool] = lambda: True,
        until: float = math.inf,
    ) -> tuple[Exchange, ...]:
        """Ask until a reply comes, the question is refused, or the tries are used up.

        A parameter that the model says it does not take is left out, without counting as a try;
        what was sent stands in each exchange. `parameters` are sent beside the messages, with the
        model's name. `tokens` is how many the request and its reply are thought to use, for the
        pace. `record` gets each exchange as soon as it is over, also one that was cancelled or that
        ends in an error. `allowed` is asked right before each request is sent; False ends the
        question with what was sent before. The question ends at once where the next try would begin
        after `until`, on the client's clock.

        Returns every request, at least one; the last one holds the reply, or the problem. Raises
        `UsageError` when the endpoint takes no request at all (wrong key, unknown model, no credit
        left), `NothingSent` when not even the first request was allowed.
        """
        exchanges: list[Exchange] = []
        refused: frozenset[str] = frozenset()
        tries = 0
        while True:
            async with self._turn(tokens):
                if not allowed():
                    break
                sent = fitted(parameters, self._not_taken | refused)
                began = self.clock()
                try:
                    exchange, failed = await self._traced(messages, sent, tokens)
                except (asyncio.CancelledError, UsageError) as error:
                    if record is not None:
                        record(_broken_off(messages, sent, error, self.clock() - began))
                    raise
            exchanges.append(exchange)
            if record is not None:
                record(exchange)
            if failed is None:
                self._not_taken |= refused
                break
            if failed.parameter is not None and failed.parameter not in refused | self.essential:
                refused |= {failed.parameter}
                continue
            tries += 1
            if failed.problem not in PASSING or tries == self.endpoint.tries or self._winding_down:
                break
            delay = self._delay(tries - 1, failed.wait)
            if self.clock() + max(delay, failed.wait or 0.0) >= until:
                break
            with self._resting():
                await self.sleep(delay)
        if not exchanges:
            raise NothingSent
        return tuple(exchanges)

    @abstractmethod
    def body(self, messages: tuple[Message, ...]) -> dict[str, Any]:
        """Return what is sent beside the parameters."""

    @abstractmethod
    def read(self, reply: Reply, messages: tuple[Message, ...]) -> dict[str, Any]:
        """Return the fields of an exchange that a reply fills.

        Raises `RequestFailed` or `streamer_client.door.ReplyFailed` for a reply that is none.
        """

    def wind_down(self) -> None:
        """Give up whatever waits for its turn or between two tries, and try nothing again. In the loop's thread."""
        self._winding_down = True
        for task in self._waiting:
            task.cancel()

    async def close(self) -> None:
        """Close the connections."""
        await self._door.aclose()

    @asynccontextmanager
    async def _turn(self, tokens: int) -> AsyncIterator[None]:
        """Hold one of the slots, from the moment that the pace allows."""
        with self._resting():
            await self._slots.acquire()
        try:
            if self.pace is not None:
                with self._resting():
                    await self.pace.turn(tokens)
            yield
        finally:
            self._slots.release()

    @contextmanager
    def _resting(self) -> Iterator[None]:
        """The current task is among those that `wind_down` gives up."""
        task = asyncio.current_task()
        if task is None or self._winding_down:
            raise asyncio.CancelledError
        self._waiting.add(task)
        try:
            yield
        finally:
            self._waiting.discard(task)

    async def _traced(
        self, messages: tuple[Message, ...], sent: dict[str, object], tokens: int
    ) -> tuple[Exchange, RequestFailed | None]:
        with self.tracing.call(self.endpoint.base_url, sent) as ended:
            exchange, failed = await self._try(messages, sent, tokens)
            usage = exchange.usage
            ended(
                model=exchange.model,
                finish_reasons=[choice.finish_reason for choice in exchange.choices],
                tokens=None if usage is None else (usage.prompt, usage.completion),
                problem=exchange.problem,
            )
        return exchange, failed

    async def _try(
        self, messages: tuple[Message, ...], parameters: dict[str, object], tokens: int
    ) -> tuple[Exchange, RequestFailed | None]:
        """One request."""
        began = self.clock()
        try:
            answered = await self._answered(messages, parameters)
        except RequestFailed as failed:
            failed.__context__ = failed.__traceback__ = None  # they hold the reply
            if self.pace is not None and failed.wait is not None:
                self.pace.hold(min(failed.wait, self.endpoint.longest_delay))
            exchange = Exchange(
                messages=messages,
                parameters=parameters,
                problem=failed.problem,
                detail=self._shown(failed.detail),
                seconds=self.clock() - began,
            )
            return exchange, failed
        exchange = Exchange(
            messages=messages, parameters=parameters, seconds=self.clock() - began, **answered
        )
        if self.pace is not None and exchange.usage is not None:
            self.pace.used(tokens, exchange.usage.prompt + exchange.usage.completion)
        return exchange, None

    async def _answered(self, messages: tuple[Message, ...], parameters: dict[str, object]) -> dict[str, Any]:
        endpoint = self.endpoint
        headers = {"Content-Type": "application/json", **(self.tracing.outgoing() or {})}
        if endpoint.api_key:
            headers["Authorization"] = f"Bearer {endpoint.api_key}"
        try:
            sent = json.dumps(
                {**self.body(messages), **parameters}, ensure_ascii=False, allow_nan=False
            ).encode()
            reply = await self._door.ask(
                "POST", endpoint.base_url.rstrip("/") + self.path,
                seconds=endpoint.timeout, headers=headers, content=sent,
            )  # fmt: skip
            if not 200 <= reply.status < 300:
                raise self._of_status(reply, parameters)
            return self.read(reply, messages)
        except UnicodeEncodeError:
            raise RequestFailed(
                "rejected", "a text has half of a surrogate pair, which no request can hold"
            ) from None
        except ReplyFailed as failed:
            if failed.code in ("timed_out", "unreachable"):
                raise RequestFailed(failed.code, str(failed)) from None
            raise RequestFailed("server_error", f"the reply cannot be read: {failed}") from None

    def _of_status(self, reply: Reply, parameters: dict[str, object]) -> RequestFailed:
        status, said = reply.status, refusal_of(reply.content)
        detail = f"{status}: {said.text}".removesuffix(": ")
        if (
            status in _OF_EVERY_REQUEST
            or said.code in _OF_EVERY_REQUEST_BY_CODE
            or (status == 400 and "api key not valid" in said.text.lower())
        ):
            endpoint = self.endpoint
            raise UsageError(
                f"the endpoint {endpoint.host} refuses every request for the model {endpoint.model} "
                f"({self._shown(detail)}): check base_url, model, api_key and the account's credit"
            )
        wait = _wanted_wait(reply.headers, now=datetime.now(UTC))
        if status == 429:
            return RequestFailed("rate_limited", detail, wait)
        if status >= 500 or status in (408, 409, 425):
            return RequestFailed("server_error", detail, wait)
        if 300 <= status < 400:
            to = reply.headers.get("location", "another address")
            return RequestFailed(
                "rejected",
                f"{status}: it redirects to {to}, which is not followed: correct base_url",
            )
        parameter = refused_parameter(
            status=status,
            code=said.code,
            param=said.param,
            message=said.text,
            sent=parameters.keys(),
        )
        return RequestFailed("rejected", detail, parameter=parameter)

    def _delay(self, failed: int, wanted: float | None) -> float:
        """Seconds to wait after `failed` + 1 failures, never less than half of the doubling delay."""
        endpoint = self.endpoint
        delay = min(endpoint.first_delay * 2.0 ** min(failed, 60), endpoint.longest_delay)
        delay *= 0.5 + 0.5 * self.jitter()
        return delay if wanted is None else max(delay, min(wanted, endpoint.longest_delay))

    def _shown(self, detail: str) -> str:
        key = self.endpoint.api_key
        return one_line(detail.replace(key, HIDDEN) if key else detail)


class Chat(LLMClient):
    """Asks a model for its next message; see `LLMClient`. Of a reply with an answer over
    `most_text` bytes no text is kept.
    """

    most_text = 2**20
    path = "/chat/completions"
    most = MOST_BYTES

    def body(self, messages: tuple[Message, ...]) -> dict[str, Any]:
        """Return the messages."""
        return {"messages": [_sent(message) for message in messages]}

    def read(self, reply: Reply, messages: tuple[Message, ...]) -> dict[str, Any]:
        """Return the fields of an exchange that a completion fills."""
        return completion_of(reply, self.most_text)


def _sent(message: Message) -> dict[str, Any]:
    calls = {"tool_calls": json.loads(message.calls)} if message.calls else {}
    return {
        "role": message.role,
        "content": message.content or (None if calls else ""),
        **calls,
        **({"tool_call_id": message.answers} if message.answers else {}),
    }


def _broken_off(
    messages: tuple[Message, ...], sent: Mapping[str, object], error: BaseException, seconds: float
) -> Exchange:
    """What is known of a request that ended in an error, or that nobody waited for any more."""
    refused = isinstance(error, UsageError)
    return Exchange(
        messages=messages,
        parameters=sent,
        problem="rejected" if refused else "timed_out",
        detail=str(error) if refused else "given up before its reply",
        seconds=seconds,
    )


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
