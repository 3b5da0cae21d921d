"""One encoder call for what many batches miss, a bounded memory, exact counts."""

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from streamer.scoring.encoders.encoder import CachedEncoder, EncoderIdentity
from tests.at_once import at_once

DIMENSION = 4


class HashingEncoder:
    """Unit vectors made from each text's hash; remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.failing = False

    @property
    def identity(self) -> EncoderIdentity:
        return EncoderIdentity("hashing", "test", "0" * 64, DIMENSION)

    def encode(
        self, texts: Sequence[str], *, progress: Callable[[int], None] | None = None
    ) -> NDArray[np.float32]:
        if self.failing:
            raise RuntimeError("no vectors today")
        self.calls.append(list(texts))
        if progress is not None:
            for _ in texts:
                progress(1)
        return np.array([vector(text) for text in texts], dtype=np.float32).reshape(-1, DIMENSION)


def vector(text: str) -> NDArray[np.float32]:
    numbers = np.frombuffer(hashlib.sha256(text.encode()).digest()[:DIMENSION], dtype=np.uint8) + 1.0
    return (numbers / np.linalg.norm(numbers)).astype(np.float32)


def test_all_that_is_missing_is_one_call_with_each_text_once():
    inner = HashingEncoder()
    CachedEncoder(inner).embed([["a", "b", "a"], ["b", "c"], []])
    assert inner.calls == [["a", "b", "c"]]


def test_vectors_come_back_in_the_order_of_each_batch():
    first, second, third = CachedEncoder(HashingEncoder()).embed([["a", "b", "a"], [], ["b"]])
    np.testing.assert_array_equal(first, [vector("a"), vector("b"), vector("a")])
    assert second.shape == (0, DIMENSION)
    np.testing.assert_array_equal(third, [vector("b")])
    assert first.dtype == second.dtype == np.float32


def test_nothing_is_encoded_twice_while_it_is_remembered():
    inner = HashingEncoder()
    encoder = CachedEncoder(inner)
    encoder.embed([["a", "b"]])
    encoder.embed([["b", "c"]])
    encoder.embed([["a", "b", "c"]])
    assert inner.calls == [["a", "b"], ["c"]]
    assert (encoder.encoded_texts, encoder.cache_hits) == (3, 4)


def test_the_least_recently_used_leaves_first():
    inner = HashingEncoder()
    encoder = CachedEncoder(inner, capacity_texts=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        encoder.embed([[text]])
    assert inner.calls == [["a"], ["b"], ["c"], ["b"]]


@pytest.mark.parametrize("capacity", [0, 1, 3])
def test_a_call_larger_than_the_memory_is_answered_and_the_bound_holds(capacity: int):
    encoder = CachedEncoder(HashingEncoder(), capacity_texts=capacity)
    texts = [str(number) for number in range(10)]
    np.testing.assert_array_equal(encoder.embed([texts])[0], [vector(text) for text in texts])
    assert len(encoder) == capacity


def test_a_negative_capacity_is_refused():
    with pytest.raises(ValueError, match="capacity_texts"):
        CachedEncoder(HashingEncoder(), capacity_texts=-1)


def test_changing_a_result_does_not_change_what_is_remembered():
    encoder = CachedEncoder(HashingEncoder())
    encoder.embed([["a"]])[0][:] = 0
    np.testing.assert_array_equal(encoder.embed([["a"]])[0], [vector("a")])


def test_after_a_failure_nothing_is_counted_or_remembered():
    inner = HashingEncoder()
    encoder = CachedEncoder(inner)
    encoder.embed([["a"]])
    inner.failing = True
    with pytest.raises(RuntimeError, match="no vectors"):
        encoder.embed([["a", "b"]])
    assert (encoder.encoded_texts, encoder.cache_hits, len(encoder)) == (1, 0, 1)


def test_progress_adds_up_to_the_number_of_texts():
    encoder = CachedEncoder(HashingEncoder())
    encoder.embed([["a"]])
    told: list[int] = []
    encoder.embed([["a", "b", "b"], ["c"]], progress=told.append)
    assert told == [2, 1, 1]


def test_texts_that_utf8_cannot_hold_are_told_apart():
    inner = HashingEncoder()
    inner.encode = lambda texts, progress=None: np.arange(8, dtype=np.float32).reshape(2, 4)  # type: ignore[method-assign]
    (rows,) = CachedEncoder(inner).embed([["\ud800", "\ud801"]])
    assert rows.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


@given(st.lists(st.lists(st.text(alphabet="abcd", max_size=2), max_size=6), max_size=6), st.integers(0, 5))
def test_memory_never_changes_a_vector(batches: list[list[str]], capacity: int):
    encoder = CachedEncoder(HashingEncoder(), capacity_texts=capacity)
    for _ in range(2):
        for batch, rows in zip(batches, encoder.embed(batches), strict=True):
            np.testing.assert_array_equal(rows, np.reshape([vector(t) for t in batch], (-1, DIMENSION)))
    assert encoder.encoded_texts + encoder.cache_hits == 2 * sum(map(len, batches))
    assert len(encoder) <= capacity


def test_threads_share_one_memory():
    encoder = CachedEncoder(HashingEncoder(), capacity_texts=16)

    def ask(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(200):
            texts = [str(number) for number in rng.integers(0, 32, size=5)]
            (rows,) = encoder.embed([texts])
            assert [row.tobytes() for row in rows] == [vector(text).tobytes() for text in texts]

    at_once(ask, *range(4))
    assert encoder.encoded_texts + encoder.cache_hits == 4 * 200 * 5
    assert len(encoder) <= 16
