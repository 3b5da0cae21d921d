"""Which texts go through the model together, so that a text's vector depends on the text alone. Pure.

A matrix product may round differently when its shape changes, and attention takes another kernel when no
position is padded. So the shape that a text meets, and whether it meets padding, must follow from its own
token count: never from the texts beside it.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Bucket(NamedTuple):
    """The shape of one forward pass: `rows` texts padded to `length` tokens; `full`: none of them is padded."""

    length: int
    full: bool
    rows: int


class MicroBatch(NamedTuple):
    """The texts of one forward pass, as indices; at most `bucket.rows`, the pass itself always has `bucket.rows`."""

    bucket: Bucket
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LengthBuckets:
    """Buckets by token count.

    Attributes
    ----------
    step : lengths are multiples of this many tokens, >= 1.
    tokens : a pass holds about this many tokens, padding included, >= 1; texts longer than it go alone.
    longest : the model's maximal number of tokens, where truncation cuts; None: it has none.
    """

    step: int = 8
    tokens: int = 64
    longest: int | None = None

    def bucket(self, token_count: int) -> Bucket:
        """The bucket of a text with `token_count` tokens, special tokens included.

        Below `longest` the length leaves at least one position to padding, so that a pass never happens to
        be free of it; texts of exactly `longest` tokens, the truncated ones, have a bucket of their own.
        """
        if token_count < 1 or (self.longest is not None and token_count > self.longest):
            raise ValueError(f"token_count must be in 1..{self.longest}, not {token_count}")
        length = self.step * (token_count // self.step + 1)
        if self.longest is not None:
            length = min(length, self.longest)
        return Bucket(length, token_count == length, max(1, self.tokens // length))

    def micro_batches(self, token_counts: Sequence[int]) -> list[MicroBatch]:
        """Every index of `token_counts` in exactly one micro-batch; longest texts first, then by position."""
        waiting: defaultdict[Bucket, list[int]] = defaultdict(list)
        for index, count in enumerate(token_counts):
            waiting[self.bucket(count)].append(index)
        return [
            MicroBatch(bucket, tuple(indices[start : start + bucket.rows]))
            for bucket, indices in sorted(waiting.items(), reverse=True)
            for start in range(0, len(indices), bucket.rows)
        ]
