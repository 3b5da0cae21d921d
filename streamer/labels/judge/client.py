"""Puts cases to a judge at an OpenAI-compatible endpoint: bounded, patient, and with a record of every exchange."""

import asyncio
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain

from streamer.errors import UsageError
from streamer.labels.judge.endpoint import JudgeEndpoint
from streamer.labels.judge.parsing import JudgeVerdict, MalformedReply, parse_verdict
from streamer.labels.judge.record import JudgeFailure, Judgement
from streamer.labels.judge.rubric import SEED, JudgeCase, judge_name, messages, reminder
from streamer.labels.llm.client import Chat, NothingSent
from streamer.labels.llm.pool import Pool
from streamer.labels.llm.record import Exchange, FailureCode, cost_of
from streamer.tracing import NO_TRACING, Tracing


class JudgeClient:
    """A language model that rates answers by the rubric. Also a context manager.

    `sleep` waits that many seconds, and `jitter` is a number in [0, 1), new at each call; both for
    tests. `id` is model and rubric, for the record; the labeller of its labels. Raises `UsageError`
    when the extra is not installed.

    Thread-safe. Requests run on an event loop in a thread of its own, at most
    `endpoint.concurrency` at a time whatever number of calls they belong to. Call `close` at the
    end.
    """

    def __init__(
        self,
        endpoint: JudgeEndpoint,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self._endpoint = endpoint
        self._seed = SEED if endpoint.seed is None else endpoint.seed
        self.id = judge_name(endpoint.model, self._seed)
        self._chat = Chat(endpoint, sleep=sleep, jitter=jitter, clock=time.monotonic, tracing=tracing)
        self._pool = Pool("judge")

    def grade(self, cases: Sequence[JudgeCase]) -> list[Judgement]:
        """Judge all cases; as `finished`, in the order of the cases."""
        found = dict(chain.from_iterable(self.finished(cases)))
        return [found[i] for i in range(len(cases))]

    def finished(self, cases: Iterable[JudgeCase]) -> Generator[list[tuple[int, Judgement]]]:
        """Judge all cases, and yield those that are ready together, at least one, to be kept at once.

        Yields the index of a case and its outcome, with a failure where it cannot be judged. Cases
        are taken as they are needed, in the caller's thread: never more than twice
        `endpoint.concurrency` are under way or waiting to be asked for.

        Raises `UsageError` when the endpoint takes no request at all: wrong key, unknown model, no
        credit left. What was yielded before holds; what was not is cancelled, as it is when the
        iterator is closed early.
        """
        jobs = (partial(self._judge, case) for case in cases)
        return self._pool.finished(jobs, ahead=2 * self._endpoint.concurrency)

    def in_time(
        self, cases: Sequence[JudgeCase], *, seconds: float, allowed: Callable[[], bool] = lambda: True
    ) -> list[Judgement | None]:
        """Judge all cases, for at most so many seconds together; in the order of the cases.

        `allowed` is asked right before each request is sent, in another thread; a case whose next
        request it does not allow ends with what was sent before, and with its last failure. A case
        that is not judged in time has the failure ``timed_out``, and holds what was asked until
        then; None where it was not asked about at all. An endpoint that takes no request is a
        failure too.
        """
        jobs = [partial(self._judge_until, case, seconds, allowed) for case in cases]
        found: dict[int, Judgement | None] = {}
        for group in self._pool.finished(jobs, ahead=max(1, len(jobs))):
            found |= dict(group)
        return [found.get(number) for number in range(len(cases))]

    def close(self) -> None:
        """Cancel what runs, close the connections and end the thread. May be called twice."""
        self._pool.close(self._chat.close)

    def __enter__(self) -> "JudgeClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _judge_until(
        self, case: JudgeCase, seconds: float, allowed: Callable[[], bool]
    ) -> Judgement | None:
        kept: list[Exchange] = []
        why: FailureCode = "timed_out"
        try:
            async with asyncio.timeout(seconds):
                return await self._judge(case, kept.append, allowed)
        except NothingSent:
            return None
        except TimeoutError:
            detail = f"no mark within {seconds:g} s"
        except UsageError as error:
            why, detail = "rejected", str(error)
        return self._judgement(case, JudgeFailure(why, detail), tuple(kept)) if kept else None

    async def _judge(
        self,
        case: JudgeCase,
        record: Callable[[Exchange], None] | None = None,
        allowed: Callable[[], bool] = lambda: True,
    ) -> Judgement:
        asked = messages(case, secrets.token_hex(16), seed=self._seed)
        parameters, claim = self._endpoint.parameters, case.answer is not None
        exchanges = await self._chat.ask(asked, parameters, record=record, allowed=allowed)
        verdict, exchanges = _read(exchanges, claim=claim)
        last = exchanges[-1]
        if verdict is None and last.problem == "malformed_reply" and last.reply is not None:
            reminded = reminder(asked, last.reply, last.detail or "", claim=claim)
            with suppress(NothingSent):
                again = await self._chat.ask(reminded, parameters, record=record, allowed=allowed)
                verdict, again = _read(again, claim=claim)
                exchanges += again
        last = exchanges[-1]
        failure = JudgeFailure(last.problem or "malformed_reply", last.detail or "")
        return self._judgement(case, verdict or failure, exchanges)

    def _judgement(
        self, case: JudgeCase, said: JudgeVerdict | JudgeFailure, exchanges: tuple[Exchange, ...]
    ) -> Judgement:
        return Judgement(
            case=case,
            judge=self.id,
            verdict=said if isinstance(said, JudgeVerdict) else None,
            failure=said if isinstance(said, JudgeFailure) else None,
            exchanges=exchanges,
            cost=cost_of(exchanges, self._endpoint.prices.get(self._endpoint.model)),
        )


def _read(
    exchanges: tuple[Exchange, ...], *, claim: bool
) -> tuple[JudgeVerdict | None, tuple[Exchange, ...]]:
    """The verdict in the last exchange's reply; without one, the exchange says what was wrong with it."""
    last = exchanges[-1]
    if last.problem is not None or last.reply is None:
        return None, exchanges
    try:
        return parse_verdict(last.reply, claim=claim), exchanges
    except MalformedReply as error:
        cut = ", cut off at the token limit" if last.finish_reason == "length" else ""
        refused = replace(last, problem="malformed_reply", detail=f"{error}{cut}")
        return None, (*exchanges[:-1], refused)
