"""What names one decision."""

from __future__ import annotations

from typing import NamedTuple


class BatchKey(NamedTuple):
    """The identity of a decision."""

    gate: str
    batch_id: str
    attempt: int
