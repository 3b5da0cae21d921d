"""Runs ``streamer`` with a clock that is off: ``python shifted_clock.py SECONDS worker --json``."""

from __future__ import annotations

import sys
import time
from datetime import datetime, timedelta, tzinfo

from streamer.cli import main
from streamer.stream import group_commit
from streamer.wiring import parts

OFF = float(sys.argv.pop(1))
real_datetime, real_time = datetime, time.time


class ShiftedDatetime(datetime):
    """Tells the time as this machine's wrong clock would."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return real_datetime.now(tz) + timedelta(seconds=OFF)


# Our own two places that read the clock, and the client libraries, which date records by it.
parts.datetime = ShiftedDatetime  # type: ignore[misc]
group_commit.datetime = ShiftedDatetime  # type: ignore[misc]
time.time = lambda: real_time() + OFF

sys.exit(main())
