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
            "Decisions": "streamer.frames.results",
            "Gate": "streamer.frames.gate",
            "NotFittedError": "streamer.errors",
            "Report": "streamer.frames.results",
        },
    )

__all__ = ["Decisions", "Gate", "NotFittedError", "Report"]
