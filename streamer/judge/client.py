"""Puts cases to a judge at an OpenAI-compatible endpoint: bounded, patient, and with a record of every exchange."""

from __future__ import annotations

import asyncio
import queue
import random
import secrets
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamer.errors import UsageError
from streamer.judge.chat import Chat
from streamer.judge.parsing import MalformedReply, Verdict, parse_verdict
from streamer.judge.record import Exchange, JudgeFailure, Judgement, cost_of
from streamer.judge.rubric import SEED, messages, reminder, rubric_id

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from types import TracebackType

    from streamer.judge.endpoint import JudgeEndpoint
    from streamer.judge.rubric import JudgeCase

_Finished = tuple[int, Judgement] | BaseException | None


class Judge:
    """A language model that marks answers by the rubric. Also a context manager.

    Parameters
    ----------
    endpoint : where the model is and how it is asked.
    sleep : waits that many seconds; for tests.
    jitter : a number in [0, 1), new at each call; for tests.
    boundary : the random mark around a case, new at each call; for tests.

    Attributes
    ----------
    id : model and rubric, for the record; the labeller of its labels.

    Raises
    ------
    UsageError : the extra is not installed.

    Notes
    -----
    Thread-safe. Requests run on an event loop in a thread of its own, at most `endpoint.concurrency` at a time
    whatever number of calls they belong to. Call `close` at the end.
    """

    def __init__(
        self,
        endpoint: JudgeEndpoint,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
        boundary: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        self._endpoint = endpoint
        self._seed = SEED if endpoint.seed is None else endpoint.seed
        self._boundary = boundary
        self.id = f"{endpoint.model}/{rubric_id(self._seed)}"
        self._chat = Chat(endpoint, sleep=sleep, jitter=jitter, clock=time.monotonic)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="judge", daemon=True)
        self._thread.start()
        self._closed = False

    def grade(self, cases: Sequence[JudgeCase]) -> list[Judgement]:
        """Judge all cases; as `judgements`, in the order of the cases."""
        found = dict(self.judgements(cases))
        return [found[i] for i in range(len(cases))]

    def judgements(self, cases: Sequence[JudgeCase]) -> Iterator[tuple[int, Judgement]]:
        """Judge all cases, one judgement at a time as they are ready: keep each before you ask for the next.

        Yields
        ------
        tuple of int and Judgement
            The index of the case and what became of it. A case that cannot be judged is a judgement with a failure.

        Raises
        ------
        UsageError
            The endpoint takes no request at all: wrong key, unknown model, no credit left. What was yielded before
            holds; what was not is cancelled, as it is when the iterator is closed early.
        """
        if self._closed:
            raise UsageError("the judge is closed")
        finished: queue.SimpleQueue[_Finished] = queue.SimpleQueue()
        running = asyncio.run_coroutine_threadsafe(self._judge_all(cases, finished.put), self._loop)
        running.add_done_callback(lambda done: finished.put(_outcome(done)))
        try:
            while (item := finished.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            running.cancel()

    def close(self) -> None:
        """Cancel what runs, close the connections and end the thread. May be called twice."""
        if self._closed:
            return
        self._closed = True
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._chat.close()
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()

    async def _judge_all(self, cases: Sequence[JudgeCase], finish: Callable[[_Finished], None]) -> None:
        waiting = iter(enumerate(cases))

        async def work() -> None:
            for i, case in waiting:
                finish((i, await self._judge(case)))

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(self._endpoint.concurrency, len(cases))):
                workers.create_task(work())

    async def _judge(self, case: JudgeCase) -> Judgement:
        asked = messages(case, self._boundary(), seed=self._seed)
        exchanges = await self._chat.ask(asked)
        verdict, exchanges = _read(exchanges)
        if verdict is None and (reply := _unreadable(exchanges[-1])) is not None:
            again = await self._chat.ask(reminder(asked, reply, exchanges[-1].detail or ""))
            verdict, again = _read(again)
            exchanges += again
        return self._judgement(case, verdict, exchanges)

    def _judgement(
        self, case: JudgeCase, verdict: Verdict | None, exchanges: tuple[Exchange, ...]
    ) -> Judgement:
        failure = None
        if verdict is None:
            last = exchanges[-1]
            failure = JudgeFailure(last.problem or "malformed_reply", last.detail or "")
        return Judgement(
            case=case,
            judge=self.id,
            verdict=verdict,
            failure=failure,
            exchanges=exchanges,
            cost=cost_of(exchanges, self._endpoint.prices.get(self._endpoint.model)),
        )


def _read(exchanges: tuple[Exchange, ...]) -> tuple[Verdict | None, tuple[Exchange, ...]]:
    """The verdict in the last exchange's reply; without one, the exchange says what was wrong with it."""
    last = exchanges[-1]
    if last.problem is not None or last.reply is None:
        return None, exchanges
    try:
        return parse_verdict(last.reply), exchanges
    except MalformedReply as error:
        cut = ", cut off at the most tokens that are allowed" if last.finish_reason == "length" else ""
        refused = replace(last, problem="malformed_reply", detail=f"{error}{cut}")
        return None, (*exchanges[:-1], refused)


def _unreadable(exchange: Exchange) -> str | None:
    return exchange.reply if exchange.problem == "malformed_reply" else None


def _outcome(done: concurrent.futures.Future[Any]) -> BaseException | None:
    """What ends a call of `judgements`: None when all is done, else the error that users are to see."""
    if done.cancelled():
        return UsageError("the judge was closed while it judged")
    error = done.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
