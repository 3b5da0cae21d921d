"""A text's shape in the model follows from its own token count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.scoring.encoders.sentence_transformer import Bucket, LengthBuckets

BUCKETS = LengthBuckets(step=8, tokens=128, longest=256)


@given(st.lists(st.integers(1, 256), max_size=200))
def test_every_text_is_in_one_micro_batch_of_its_own_bucket(counts: list[int]) -> None:
    plan = BUCKETS.micro_batches(counts)
    assert sorted(index for _, members in plan for index in members) == list(range(len(counts)))
    for bucket, members in plan:
        assert 1 <= len(members) <= bucket.rows
        assert all(BUCKETS.bucket(counts[index]) == bucket for index in members)


@given(st.integers(1, 256))
def test_a_bucket_is_either_full_of_tokens_or_leaves_a_position_to_padding(count: int) -> None:
    bucket = BUCKETS.bucket(count)
    assert count <= bucket.length <= 256
    assert bucket.full == (count == bucket.length)


@pytest.mark.parametrize(
    ("count", "bucket"),
    [
        (1, Bucket(8, full=False, rows=16)),
        (7, Bucket(8, full=False, rows=16)),
        (8, Bucket(16, full=False, rows=8)),
        (100, Bucket(104, full=False, rows=1)),
        (255, Bucket(256, full=False, rows=1)),
        (256, Bucket(256, full=True, rows=1)),
    ],
)
def test_buckets(count: int, bucket: Bucket) -> None:
    assert BUCKETS.bucket(count) == bucket


def test_a_maximal_length_that_is_no_multiple_of_the_step_is_respected() -> None:
    buckets = LengthBuckets(step=8, tokens=64, longest=30)
    assert [buckets.bucket(count) for count in (23, 24, 29, 30)] == [
        Bucket(24, full=False, rows=2),
        Bucket(30, full=False, rows=2),
        Bucket(30, full=False, rows=2),
        Bucket(30, full=True, rows=2),
    ]


def test_without_a_maximal_length_no_text_is_too_long() -> None:
    assert LengthBuckets(longest=None).bucket(100_000) == Bucket(100_008, full=False, rows=1)


@pytest.mark.parametrize("count", [0, -1, 257])
def test_impossible_token_counts_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match="token_count"):
        BUCKETS.bucket(count)
