"""The audit draw: keyed, reproducible, uniform, and deaf to everything but identity."""

import math
from collections import Counter
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from streamer.gates.batch_key import BatchKey
from streamer.labels.audit_sample import draw_responses, is_sampled

SALT = bytes(range(32))
IDENTIFIERS = st.text(min_size=1, max_size=20)


def keys(n: int) -> list[BatchKey]:
    return [BatchKey("support-bot", f"batch-{i}", 1) for i in range(n)]


def test_the_rate_is_the_logged_probability() -> None:
    n, p = 20_000, 0.2
    taken = sum(is_sampled(SALT, key, p) for key in keys(n))
    # two-sided normal bound at 1e-6: 4.9 standard errors of a binomial proportion
    assert abs(taken - n * p) < 4.9 * math.sqrt(n * p * (1 - p))


def test_none_at_zero_and_all_at_one() -> None:
    assert not any(is_sampled(SALT, key, 0.0) for key in keys(1000))
    assert all(is_sampled(SALT, key, 1.0) for key in keys(1000))


@given(IDENTIFIERS, st.integers(1, 9), st.floats(0, 1), st.floats(0, 1))
def test_a_batch_taken_at_one_rate_is_taken_at_every_higher_one(
    batch_id: str, attempt: int, p: float, q: float
) -> None:
    key = BatchKey("g", batch_id, attempt)
    low, high = sorted((p, q))
    assert is_sampled(SALT, key, low) <= is_sampled(SALT, key, high)


def test_another_salt_gives_an_independent_draw() -> None:
    n = 10_000
    both = sum(is_sampled(SALT, k, 0.5) and is_sampled(b"another" * 4, k, 0.5) for k in keys(n))
    assert abs(both - n / 4) < 4.9 * math.sqrt(n * 0.25 * 0.75)


def test_identities_that_concatenate_alike_are_told_apart() -> None:
    pairs = [(BatchKey("ab", f"c{i}", 1), BatchKey("a", f"bc{i}", 1)) for i in range(200)]
    differing = sum(is_sampled(SALT, x, 0.5) != is_sampled(SALT, y, 0.5) for x, y in pairs)
    assert differing > 0


def test_every_subset_of_two_is_drawn_equally_often() -> None:
    ids = ["a", "b", "c", "d"]
    n = 12_000
    seen = Counter(draw_responses(SALT, key, ids, 2) for key in keys(n))
    subsets = [frozenset(pair) for pair in combinations(ids, 2)]
    assert set(seen) == set(subsets)
    p = 1 / len(subsets)
    for subset in subsets:
        assert abs(seen[subset] - n * p) < 5.2 * math.sqrt(n * p * (1 - p))


@given(st.lists(IDENTIFIERS, min_size=1, max_size=12, unique=True), st.integers(1, 15), st.randoms())
def test_the_draw_does_not_depend_on_the_order_of_responses(ids: list[str], k: int, shuffler: object) -> None:
    key = BatchKey("g", "b", 1)
    drawn = draw_responses(SALT, key, ids, k)
    shuffled = list(ids)
    shuffler.shuffle(shuffled)  # type: ignore[attr-defined]
    assert draw_responses(SALT, key, shuffled, k) == drawn
    assert len(drawn) == min(k, len(ids))
    assert drawn <= set(ids)
