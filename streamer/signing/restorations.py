"""Backups that were restored: what of the log of heads was given up with what came after them, and under which origin it goes on."""

import json
from datetime import UTC, datetime
from typing import NamedTuple

from streamer.signing.canonical_json import canonical_json


def origin_of(record_id: str) -> str:
    """The origin of a record's checkpoints until a backup is restored: the name of its log of heads, under which its key signs."""
    return f"streamer/{record_id}"


class Restoration(NamedTuple):
    """Heads of other logs that this record's once was, given up where a backup was restored.

    Attributes
    ----------
    id : from 1.
    origin : of checkpoints from here on.
    kept : how many heads stay as they are.
    given_up : a JSON array of origins, each with the size of its largest log of heads that is given up.
    """

    id: int
    at: datetime
    by: str
    reason: str
    origin: str
    kept: int
    given_up: str

    def gives_up(self, origin: str, size: int) -> bool:
        """Whether it gives up the log of heads that a checkpoint is of."""
        return size > self.kept and any(
            size <= most for name, most in json.loads(self.given_up) if name == origin
        )

    def statement(self, record_id: str) -> bytes:
        """What its signature covers."""
        at = self.at.astimezone(UTC).isoformat(timespec="microseconds")
        said = canonical_json({**self._asdict(), "at": at, "record": record_id})
        return b"streamer.restoration.v1\x00" + said
