"""Signals of what the encoder did not read, 1 or 0, the same for all answers of a batch. Pure."""

from streamer.scoring.signals.signal import Signal, signal
from streamer.scoring.unread_answers import Rule


def _mark(rule: Rule, title: str, says: str) -> Signal:
    """1 where the rule holds of an answer."""
    return signal(rule, title, says, mean=0, deviation=1)(lambda batch: float(rule in batch.batch.not_read))


cut = _mark("cut", "an answer is cut", "is one of answers that the encoder cannot read whole")
unread = _mark(
    "unread", "an answer is unread", "is one of answers whose characters the encoder does not know"
)
twin = _mark("twin", "two answers look alike", "is one of answers that the encoder confuses")
