"""Halts the worker when so much is refused that continuing would hide the reason."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from streamer.journal import OutcomeKind

_REFUSED = frozenset({"dead_letter", "conflict"})


@dataclass(frozen=True, slots=True)
class DeadLetterLimits:
    """The caps; past one of them the worker halts.

    Attributes
    ----------
    run : refused records in a row, >= 1.
    ratio : share of refused records, in (0, 1], among the last `window` ones.
    window : how many records the ratio looks back on, >= 1; judged only once so many were seen.
    """

    run: int = 1000
    ratio: float = 0.5
    window: int = 10_000

    def __post_init__(self) -> None:
        if self.run < 1 or self.window < 1 or not 0 < self.ratio <= 1:
            raise ValueError("dead-letter limits: run >= 1, window >= 1, 0 < ratio <= 1")


class DeadLetterCap:
    """Counts outcomes as they are committed."""

    def __init__(self, limits: DeadLetterLimits) -> None:
        self._limits = limits
        self._recent: deque[bool] = deque(maxlen=limits.window)
        self._refused = 0
        self._run = 0

    def passed(self, kinds: Iterable[OutcomeKind]) -> str | None:
        """Count these; returns which cap was exceeded, in words, or None."""
        reason: str | None = None
        for kind in kinds:
            refused = kind in _REFUSED
            if len(self._recent) == self._limits.window:
                self._refused -= self._recent[0]
            self._recent.append(refused)
            self._refused += refused
            self._run = self._run + 1 if refused else 0
            if self._run > self._limits.run:
                reason = f"more than {self._limits.run} records in a row were refused"
            elif (
                len(self._recent) == self._limits.window
                and self._refused > self._limits.ratio * self._limits.window
            ):
                reason = (
                    f"{self._refused} of the last {self._limits.window} records were refused "
                    f"(the cap is {self._limits.ratio:.0%})"
                )
        return reason
