"""Ctrl-C that waits for atomic steps."""

import signal
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

    def __enter__(self) -> "PatientInterrupt":
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _interrupt(self, *_: Any) -> None:
        self.wanted = True
        if not self._held:
            raise KeyboardInterrupt
