"""Texts are encoded while their events wait: each event is ready when its own texts are there, and nothing is encoded for naught."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait

import numpy as np
import pytest
from numpy.typing import NDArray

from streamer.deciding.reading_ahead import TextQueue, reading_ahead
from streamer.events.responses import decode_responses
from streamer.gates.batch_key import BatchKey
from streamer.journal import Partition, Record
from streamer.scoring.encoders.encoder import CachedEncoder
from tests.unit.deciding.test_decider import (
    HELD,
    LIMITS,
    TOPICS,
    HashingEncoder,
    World,
    batch,
    raw,
    with_embeddings,
)

PATIENCE = 240.0


class OfTwoThreads(HashingEncoder):
    """Begins with a text that says so only when it may."""

    at_once = 2

    def __init__(self) -> None:
        super().__init__()
        self.may = threading.Event()

    def encode(
        self, texts: Sequence[str], *, progress: Callable[[int], None] | None = None
    ) -> NDArray[np.float32]:
        if any("wait" in text for text in texts):
            assert self.may.wait(PATIENCE)
        return super().encode(texts, progress=progress)


@pytest.fixture
def inner() -> Iterator[OfTwoThreads]:
    made = OfTwoThreads()
    yield made
    made.may.set()


def added(queue: TextQueue, *texts: str) -> Future[None]:
    done: Future[None] = Future()
    queue.add(texts, done)
    return done


def test_an_event_waits_for_its_own_texts_alone(inner: OfTwoThreads):
    encoder = CachedEncoder(inner, capacity_texts=100)
    queue = TextQueue(encoder)
    long, short = added(queue, "wait", "b"), added(queue, "c", "d", "e")
    short.result(PATIENCE)
    assert not long.done()
    inner.may.set()
    long.result(PATIENCE)
    queue.close()
    assert sorted(text for call in inner.calls for text in call) == ["b", "c", "d", "e", "wait"]
    encoder.embed([["wait", "b"], ["c", "d", "e", "c"]])
    assert (encoder.encoded_texts, encoder.cache_hits) == (5, 1)


def test_what_cannot_be_made_is_done_and_what_nobody_waits_for_is_not_made(inner: OfTwoThreads):
    queue = TextQueue(CachedEncoder(inner, capacity_texts=8))
    added(queue, "this cannot be encoded").result(PATIENCE)
    held = [added(queue, "wait 1"), added(queue, "wait 2")]
    gone, kept = added(queue, "gone"), added(queue, "kept")
    assert added(queue, "a", "b", "c").done(), "more than half of what is remembered would wait"
    gone.cancel()
    inner.may.set()
    wait([*held, kept], PATIENCE)
    queue.close()
    assert ["kept"] in inner.calls
    assert not any("gone" in call for call in inner.calls)


def test_exactly_what_deciding_asks_for_is_encoded_ahead(inner: OfTwoThreads):
    known = batch("open", texts=["seen", "before"], batch_id="known")
    key = decode_responses(raw(known), LIMITS).key
    world = World({BatchKey(key.gate, key.batch_id, key.attempt): b"h" * 32})
    encoder = CachedEncoder(inner, capacity_texts=1000)
    world.decider._encoders = {encoder.identity.id: encoder}
    events = [
        raw(batch("bot", texts=["yes", "no", "yes"])),
        raw(batch("each", texts=["this cannot be encoded", "fine"], batch_id="b-2")), raw(known),
        with_embeddings(np.eye(8).tolist()[:3]), raw(batch("judge")), b"{", None,
        *(HELD[reason] for reason in ("empty_text", "encoder_mismatch", "deadline_passed")),
    ]  # fmt: skip
    place = Partition("log", TOPICS.responses, 0)
    records = [Record(place, n, b"k", value, (), 0) for n, value in enumerate(events)]
    world.book.refresh()
    with reading_ahead(world.decider, encoder) as prepare:
        assert prepare is not None
        begun = [one for record in records if (one := prepare(record)) is not None]
        wait(begun, PATIENCE)
        assert all(one.done() for one in begun)
    made = {text for call in inner.calls for text in call}
    assert made == {"yes", "no", "this cannot be encoded", "fine"}
    ahead = len(inner.calls)
    world.decider.outcomes(records)
    assert {text for call in inner.calls[ahead:] for text in call} == {"this cannot be encoded"}


def test_nothing_is_read_ahead_where_no_gate_has_texts_encoded_or_they_are_encoded_elsewhere(
    inner: OfTwoThreads,
):
    world = World()
    world.sql = {name: world.sql[name] for name in ("judge", "outer")}
    world.book.refresh()
    with reading_ahead(world.decider, CachedEncoder(inner)) as prepare:
        assert prepare is not None
        assert (
            prepare(Record(Partition("log", TOPICS.responses, 0), 0, None, raw(batch("judge")), (), 0))
            is None
        )
    for encoder in (None, CachedEncoder(inner, capacity_texts=0), CachedEncoder(HashingEncoder())):
        with reading_ahead(world.decider, encoder) as prepare:
            assert prepare is None
