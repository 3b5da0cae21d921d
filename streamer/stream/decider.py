"""What the stream asks of a decider."""

from collections.abc import Sequence
from typing import Protocol

from streamer.journal import DeadLetter, Outcome, Record


class Decider(Protocol):
    """Turns records into outcomes."""

    def outcomes(self, records: Sequence[Record], outdated: Sequence[Outcome] = ()) -> list[Outcome]:
        """One outcome for each record, in order. Blocks; called on a worker thread, one call at a time.

        `outdated` are earlier outcomes of the same records that `Journal.commit` found `Outdated`: decide again with the
        newest policies, and recompute nothing that does not depend on a policy.

        A message that is bad is an outcome, not an error. Raises `Unavailable` when a dependency is unavailable
        (the same records are then offered again). Another `StreamerError` or an `OSError` ends the worker. Whatever
        else it raises is blamed on a record: fewer are offered until it is found.
        """
        ...

    def dead_letter(self, record: Record, code: str, detail: str) -> DeadLetter:
        """The outcome of a record that is refused for this reason. Does not block."""
        ...
