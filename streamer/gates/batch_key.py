"""What names one decision."""

from typing import NamedTuple


class BatchKey(NamedTuple):
    """The identity of a decision."""

    gate: str
    batch_id: str
    attempt: int
