"""Ctrl-C that waits for atomic steps, or for work under way."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any


class PatientInterrupt:
    """Ctrl-C stops at once, but not between `hold` and `release`: then at `release`. For the main thread.

    A context manager: afterwards Ctrl-C does what it did before.

    Attributes
    ----------
    wanted : whether it came. To be asked where a library may have swallowed the exception.
    """

    def __init__(self) -> None:
        self._held = False
        self.wanted = False

    def hold(self) -> None:
        """From here on Ctrl-C waits."""
        self._held = True

    def release(self) -> None:
        """Continue; raises `KeyboardInterrupt` when a stop was requested."""
        self._held = False
        if self.wanted:
            raise KeyboardInterrupt

    def __enter__(self) -> PatientInterrupt:
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _interrupt(self, *_: Any) -> None:
        self.wanted = True
        if not self._held:
            raise KeyboardInterrupt


class WindDown:
    """The first Ctrl-C or SIGTERM asks to stop, the second one stops at once. For the main thread.

    A context manager: afterwards both signals do what they did before.

    Parameters
    ----------
    begin : called at the first signal; returns at once.

    Attributes
    ----------
    signal : the number of the first one; None while there was none.
    """

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin = begin
        self.signal: int | None = None

    def __enter__(self) -> WindDown:
        self._before = {
            number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _stop(self, number: int, _frame: Any) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        self._begin()
