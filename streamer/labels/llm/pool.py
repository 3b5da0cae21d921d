"""Many questions at once, from ordinary code: an event loop in a thread of its own, and what is ready as it is ready."""

import asyncio
import concurrent.futures
import itertools
import queue
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

from streamer.errors import UsageError

T = TypeVar("T")


class _Job(NamedTuple, Generic[T]):
    """A job under way."""

    number: int
    result: concurrent.futures.Future[T]


class Pool:
    """Runs coroutines in a named thread of its own. Thread-safe. Call `close` at the end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self._closed = False
        self._winding_down = False
        # Cancelled first, as what they began ends with them: a task of a group that is cancelled
        # before its first step leaves a coroutine that nobody awaits.
        self._tasks: set[asyncio.Task[Any]] = set()

    def finished(
        self, jobs: Iterable[Callable[[], Coroutine[Any, Any, T]]], *, ahead: int
    ) -> Generator[list[tuple[int, T]]]:
        """Run all jobs, and yield what is ready together, at least one, with the jobs' numbers.

        Jobs are taken as they are needed, in the caller's thread: at most `ahead` >= 1 of them are
        under way or waiting to be asked for. Raises `UsageError` when the pool was closed, and what
        a job raised, after everything that was ready has been yielded. The others are cancelled
        then, as they are when the iterator is closed early.
        """
        waiting = enumerate(jobs)
        ended: queue.SimpleQueue[_Job[T]] = queue.SimpleQueue()
        running: set[_Job[T]] = set()
        try:
            while True:
                if not self._winding_down:
                    for number, job in itertools.islice(waiting, ahead - len(running)):
                        running.add(self._start(number, job, ended))
                if not running:
                    return
                ready: list[tuple[int, T]] = []
                error: BaseException | None = None
                for asked in _at_least_one(ended):
                    running.discard(asked)
                    try:
                        ready.append((asked.number, asked.result.result()))
                    except concurrent.futures.CancelledError as cancelled:
                        error = error or (None if self._winding_down else cancelled)
                    except Exception as failed:
                        error = error or failed
                if ready:
                    yield ready
                if isinstance(error, concurrent.futures.CancelledError):
                    raise UsageError(f"the {self._name} was closed while it worked") from None
                if error is not None:
                    raise error
        finally:
            for asked in running:
                asked.result.cancel()

    def wind_down(self, give_up: Callable[[], None], *, seconds: float) -> None:
        """Take no further job, let running ones finish for so many seconds, then cancel them. May
        be called twice.

        `give_up` is called in the loop's thread at once, and ends what only waits.
        """
        self._winding_down = True

        def begin() -> None:
            give_up()
            self._loop.call_later(seconds, cancel)

        def cancel() -> None:
            if self._closed:
                return
            for task in self._tasks:
                task.cancel()

        self._loop.call_soon_threadsafe(begin)

    def close(self, at_last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Cancel what runs, do `at_last`, and end the thread. May be called twice."""
        if self._closed:
            return
        self._closed = True
        asyncio.run_coroutine_threadsafe(self._end(at_last), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _start(
        self, number: int, job: Callable[[], Coroutine[Any, Any, T]], ended: queue.SimpleQueue[_Job[T]]
    ) -> _Job[T]:
        if self._closed:
            raise UsageError(f"the {self._name} is closed")
        asked = _Job(number, asyncio.run_coroutine_threadsafe(self._run(job), self._loop))
        asked.result.add_done_callback(lambda _: ended.put(asked))
        return asked

    async def _run(self, job: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._closed:
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await job()
        finally:
            self._tasks.remove(task)

    async def _end(self, at_last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        # What is cancelled may begin something once more, as a connection that tries the next address does.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            ending = others & self._tasks or others
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)
        await at_last()
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()


def _at_least_one(ended: queue.SimpleQueue[_Job[T]]) -> Iterator[_Job[T]]:
    """What has ended; waits for the first."""
    yield ended.get()
    with suppress(queue.Empty):
        while True:
            yield ended.get_nowait()
