"""The present budget period of a gate over time, read again from the record for a chart. Calls block."""

import threading
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any, Final

from streamer.risk.rounds.serving import Course
from streamer.store import Store

_PAGE: Final = 2_000
_POINTS: Final = 240


@dataclass(slots=True)
class _Reading:
    course: Course
    sequence: int
    labels: int
    step: int
    points: list[tuple[datetime, Any]]


class Courses:
    """The present budget period of each gate over time, read again from the record and kept."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, _Reading] = {}
        self._locks: dict[str, threading.Lock] = {}

    def of(self, gate: str, seconds: float) -> tuple[list[tuple[datetime, Any]], bool]:
        """Return moments, each with what the period had come to (`OpenTime`), and whether all of it has been read.

        It is read for so many seconds; the next call goes on.
        """
        # Several people may look at one gate; what one reads the other need not.
        with self._locks.setdefault(gate, threading.Lock()):
            points, whole = self._read(gate, seconds)
            return list(points), whole

    def _read(self, gate: str, seconds: float) -> tuple[list[tuple[datetime, Any]], bool]:
        monitoring = self._store.monitoring
        watch = monitoring.watch(gate)
        if watch.sequence is None:
            return [], True
        known = self._known.get(gate)
        if known is None or known.sequence != watch.sequence.number:
            decisions = watch.sequence.state.decisions
            known = _Reading(Course(watch), watch.sequence.number, watch.labels, max(1, decisions // 120), [])
            self._known[gate] = known
        end, until = monotonic() + seconds, watch.read
        while known.course.read < until:
            if monotonic() > end:
                return known.points, False
            page = monitoring.decided(gate, after=known.course.read, until=until, limit=_PAGE)
            if not page:
                known.course.read = until
                break
            page = monitoring.labelled(gate, page, until=watch.labels)
            numbers = page.numbers
            for last in [*numbers[known.step - 1 : -1 : known.step], numbers[-1]]:
                stretch = known.course.go_on(page, last)
                if stretch is not None:
                    known.points.append((stretch.until, stretch.open))
            if len(known.points) > 2 * _POINTS:
                known.points = known.points[1::2]
                known.step *= 2
        return known.points, True
