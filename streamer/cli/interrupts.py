"""Ctrl-C that waits for what must not be cut in two."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType


class PatientInterrupt:
    """Ctrl-C stops at once, but not between `hold` and `release`: then at `release`. For the main thread.

    A context manager: afterwards Ctrl-C does what it did before.
    """

    def __init__(self) -> None:
        self._held = False
        self._wanted = False

    def hold(self) -> None:
        """From here on Ctrl-C waits."""
        self._held = True

    def release(self) -> None:
        """Go on; raises `KeyboardInterrupt` when somebody wants to stop."""
        self._held = False
        if self._wanted:
            raise KeyboardInterrupt

    def __enter__(self) -> PatientInterrupt:
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _interrupt(self, *_: Any) -> None:
        self._wanted = True
        if not self._held:
            raise KeyboardInterrupt
