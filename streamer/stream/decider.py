"""What the stream asks of whoever decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamer.journal import Outcome, Record


class Decider(Protocol):
    """Turns records into outcomes."""

    def outcomes(self, records: Sequence[Record], outdated: Sequence[Outcome] = ()) -> list[Outcome]:
        """One outcome for each record, in order. Blocks; called on a worker thread, one call at a time.

        `outdated` are earlier outcomes of the same records that `Journal.commit` found `Outdated`: decide again with the
        newest policies, and compute nothing anew that does not depend on a policy.

        A message that is bad is an outcome, not an error. Raises `Unavailable` when a part that it needs
        is away (the same records are then offered again); anything else that it raises ends the worker.
        """
        ...
