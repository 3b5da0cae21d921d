"""How many groups are new or raised since the newest run of each gate: when they are counted, and the counts."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import NamedTuple

import sqlalchemy as sa

from streamer.gates.policy import GateRevision
from streamer.store.calibration.new_groups import new_and_raised, youngest_read
from streamer.store.calibration.newest_runs import NewestRun
from streamer.store.db.schema import label_revisions
from streamer.store.labels.read_labels import ReadLabels

_MOST_SECONDS = 0.25
"""So long one look may count groups that were counted before; the rest waits for the next."""

_OLD_SECONDS = 60.0
"""A count that is older is repeated although no label came."""


class Asked(NamedTuple):
    """What groups of a gate are counted against.

    Attributes
    ----------
    run : the newest that the next one goes on from; None: all groups are new.
    since : the policy from which on batches are read, after an alarm.
    """

    gate: GateRevision
    run: NewestRun | None
    since: int | None

    @property
    def against(self) -> tuple[int | None, int | None, int]:
        """What a count depends on, beside labels and time."""
        return None if self.run is None else self.run.number, self.since, self.gate.revision


@dataclass(slots=True)
class GroupCount:
    """New and raised groups, what they were counted against, and when by the monotonic clock."""

    new: int
    raised: int
    against: tuple[int | None, int | None, int]
    at: float


class GroupCounts:
    """The counts of all gates, kept until a label comes or time has passed."""

    def __init__(self, read: ReadLabels) -> None:
        self._read = read
        self._counts: dict[str, GroupCount] = {}
        self._labels_seen: int | None = None
        self._labels_came: dict[str, int] = {}
        self._labelled: set[str] = set()
        self._labelled_at: dict[str, float] = {}

    def count(
        self, connection: sa.Connection, asked: Mapping[str, Asked], now: datetime, *, recount: bool
    ) -> Mapping[str, GroupCount]:
        """Count where labels came, and of the other gates in turn; with `recount` everywhere."""
        self._look_for_labels(connection)
        began = time.monotonic()
        for name, needed in self._to_count(asked, recount=recount):
            if not needed and time.monotonic() - began > _MOST_SECONDS:
                continue
            one = asked[name]
            labels = self._read.table(connection, name)
            new, raised = new_and_raised(connection, labels, one.gate, one.run, one.since, now)
            self._counts[name] = GroupCount(new, raised, one.against, time.monotonic())
            self._labelled.discard(name)
        return self._counts

    def _look_for_labels(self, connection: sa.Connection) -> None:
        newest = connection.execute(sa.select(sa.func.max(label_revisions.c.id))).scalar() or 0
        seen = self._labels_seen
        if seen is not None and newest > seen:
            query = (
                sa.select(label_revisions.c.gate, sa.func.count())
                .where(label_revisions.c.id > seen)
                .group_by(label_revisions.c.gate)
            )
            for gate, labels in connection.execute(query):
                self._labels_came[gate] = self._labels_came.get(gate, 0) + labels
                self._labelled.add(gate)
                self._labelled_at[gate] = time.monotonic()
        self._labels_seen = newest

    def _to_count(self, asked: Mapping[str, Asked], *, recount: bool) -> Iterator[tuple[str, bool]]:
        """Gates to be counted, the longest uncounted first, and whether the count that there is will not do."""
        aged = []
        for name in sorted(asked, key=lambda one: self._counts[one].at if one in self._counts else 0.0):
            count = self._counts.get(name)
            against = asked[name].against
            if recount or count is None or count.against != against:
                yield name, True
            elif name in self._labelled or self._ripens(asked[name], count.at):
                yield name, False
            elif time.monotonic() - count.at > _OLD_SECONDS:
                aged.append(name)
        for name in aged[: ceil(len(asked) / 20)]:
            yield name, False

    def labels_seen(self, gate: str) -> int:
        """How many labels of a gate came since this process first looked."""
        return self._labels_came.get(gate, 0)

    def _ripens(self, one: Asked, counted_at: float) -> bool:
        """Whether labels came for decisions that were too young to be read when they were counted."""
        deadline = youngest_read(one.gate.settings, one.run)
        ripe = self._labelled_at.get(one.gate.gate, float("-inf")) + deadline
        return counted_at <= ripe and time.monotonic() - counted_at > deadline
