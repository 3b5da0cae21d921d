"""Has the texts of an event encoded while the event waits for its turn."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import structlog

from streamer.deciding.decider import BatchDecider
from streamer.journal import Record
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.scoring.encoders.text_queue import TextQueue

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
