"""Has the texts of an event encoded while the event waits for its turn."""

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import structlog

from streamer.deciding.decider import BatchDecider
from streamer.journal import Record
from streamer.scoring.encoders.encoder import CachedEncoder

_MOST = 32_000
"""Characters that a thread takes at once, about: more gain little, and a process that ends waits for them."""


@dataclass(slots=True, eq=False)
class _Asked:
    done: Future[None]
    left: int


class TextQueue:
    """Has texts embedded before they are asked for; `CachedEncoder.embed` then finds them.

    There are as many threads as the encoder has calls `at_once`. A thread takes its part of what
    waits: few texts while few wait, so that those of one event are shared by all threads; more
    under load, where passes of several texts are quicker.
    """

    def __init__(self, encoder: CachedEncoder) -> None:
        self._encoder = encoder
        self._waiting: deque[tuple[str, _Asked]] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"streamer-texts-{number}", daemon=True)
            for number in range(encoder.at_once)
        ]
        for thread in self._threads:
            thread.start()

    def add(self, texts: Collection[str], done: Future[None]) -> None:
        """Set `done` once the texts are remembered, or cannot be made: whoever asks for them then is told why.

        That is at once where more wait than would be remembered. Texts of a `done` that is cancelled are passed over.
        """
        asked = _Asked(done, len(texts))
        with self._changed:
            fits = len(self._waiting) + len(texts) <= self._encoder.capacity // 2
            if texts and fits and not self._ended:
                self._waiting.extend((text, asked) for text in texts)
                self._changed.notify_all()
                return
        _set(done)

    def close(self) -> None:
        """Make nothing more; what is being made is waited for."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        for _, asked in self._waiting:
            asked.done.cancel()

    def _serve(self) -> None:
        while taken := self._take():
            texts = [text for text, asked in taken if not asked.done.cancelled()]
            with suppress(Exception):
                self._encoder.remember(texts)
            for _, asked in taken:
                with self._changed:
                    asked.left -= 1
                    last = not asked.left
                if last:
                    _set(asked.done)

    def _take(self) -> list[tuple[str, _Asked]]:
        """Wait for texts; none: it has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended)
            if self._ended:
                return []
            part, left = -(-len(self._waiting) // (2 * len(self._threads))), _MOST
            taken: list[tuple[str, _Asked]] = []
            while len(taken) < part and left > 0:
                taken.append(self._waiting.popleft())
                left -= len(taken[-1][0])
            return taken


def _set(done: Future[None]) -> None:
    with suppress(InvalidStateError):  # cancelled meanwhile
        done.set_result(None)


_TOGETHER = 50
"""Records that are looked up together, at most."""

log = structlog.get_logger(__name__)


@contextmanager
def reading_ahead(
    decider: BatchDecider, encoder: CachedEncoder | None
) -> Iterator[Callable[[Record], Future[None] | None] | None]:
    """Give what begins with a record's texts, and tells when they are there; None where nothing is gained.

    What fails is left to whoever decides the record, who finds it out anew and says so.
    """
    if encoder is None or not encoder.at_once or not encoder.capacity:
        yield None
        return
    identity = encoder.identity.id
    queue = TextQueue(encoder)
    waiting: deque[tuple[Record, Future[None]]] = deque()

    def begin() -> None:
        taken = [waiting.popleft() for _ in range(min(len(waiting), _TOGETHER))]
        wanted = [(record, ready) for record, ready in taken if not ready.cancelled()]
        try:
            texts = decider.texts_of([record for record, _ in wanted], identity)
        except Exception as error:
            log.debug("deciding.not_read_ahead", error=f"{type(error).__name__}: {error}"[:300])
            texts = [frozenset()] * len(wanted)
        for some, (_, ready) in zip(texts, wanted, strict=True):
            queue.add(some, ready)

    def prepare(record: Record) -> Future[None] | None:
        if not decider.encodes(identity):
            return None
        ready: Future[None] = Future()
        waiting.append((record, ready))
        pool.submit(begin)
        return ready

    pool = ThreadPoolExecutor(1, thread_name_prefix="streamer-ahead")
    try:
        yield prepare
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        queue.close()
