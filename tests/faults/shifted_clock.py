"""Runs ``streamer`` with a clock that is off: ``python shifted_clock.py SECONDS worker --json``."""

import sys
import time
from datetime import datetime, timedelta, tzinfo

OFF = float(sys.argv.pop(1))
real_datetime, real_time = datetime, time.time

# Before anything else is imported: the client libraries keep the function, and date records by it.
time.time = lambda: real_time() + OFF

from streamer.cli import main  # noqa: E402
from streamer.stream import group_commit  # noqa: E402
from streamer.wiring import parts  # noqa: E402


class ShiftedDatetime(datetime):
    """Tells the time as this machine's wrong clock would."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return real_datetime.now(tz) + timedelta(seconds=OFF)


# Our own two places that read the clock.
parts.datetime = ShiftedDatetime  # type: ignore[misc]
group_commit.datetime = ShiftedDatetime  # type: ignore[misc]

sys.exit(main())
