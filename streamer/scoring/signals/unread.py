"""Signals of what the encoder did not read, 1 or 0, the same for all answers of a batch. Pure."""

from streamer.scoring.signals.measured import Measured
from streamer.scoring.signals.signal import signal


@signal(
    "cut", "an answer is cut", "is one of answers that the encoder cannot read whole", mean=0, deviation=1
)
def cut(batch: Measured) -> float:
    """An answer has more tokens than the encoder takes."""
    return float("cut" in batch.batch.not_read)


@signal(
    "unread",
    "an answer is unread",
    "is one of answers whose characters the encoder does not know",
    mean=0,
    deviation=1,
)
def unread(batch: Measured) -> float:
    """At least a tenth of the visible characters of an answer are unknown to the encoder."""
    return float("unread" in batch.batch.not_read)


@signal("twin", "two answers look alike", "is one of answers that the encoder confuses", mean=0, deviation=1)
def twin(batch: Measured) -> float:
    """Two answers have one vector and other characters."""
    return float("twin" in batch.batch.not_read)
