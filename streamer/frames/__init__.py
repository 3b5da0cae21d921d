"""A gate for the table at hand: calibrate and decide in Python, by the code that a gate in service runs."""

from typing import TYPE_CHECKING

from streamer.lazy import lazy_names

if TYPE_CHECKING:
    from streamer.errors import NotFittedError
    from streamer.frames.gate import Gate
    from streamer.frames.results import Decisions, Report
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "streamer.errors": "NotFittedError",
            "streamer.frames.gate": "Gate",
            "streamer.frames.results": "Decisions Report",
        },
    )
