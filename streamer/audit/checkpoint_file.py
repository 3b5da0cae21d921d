"""A file of checkpoints outside the database: one JSON value a line, only ever appended to."""

import fcntl
import os
from pathlib import Path
from typing import BinaryIO

_BLOCK = 65_536
"""Longer than any line."""


class CheckpointFile:
    """Several processes of one machine may append to it: they take turns.

    A process that dies while it writes leaves a line without an end; the next append removes it, and readers
    skip it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def last(self) -> bytes | None:
        """The last whole line; None when there is none yet. Raises `OSError`."""
        with self._open() as file:
            return _last(file)[0]

    def append(self, line: bytes, *, after: bytes | None) -> bool:
        """Add a line and make it last. Raises `OSError`.

        Returns False, and writes nothing, when the last line is not `after` any more: another process was faster.
        """
        with self._open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            last, end = _last(file)
            if last != after:
                return False
            file.truncate(end)
            file.write(line + b"\n")
            file.flush()
            os.fsync(file)
        return True

    def _open(self) -> BinaryIO:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return self.path.open("a+b")


def _last(file: BinaryIO) -> tuple[bytes | None, int]:
    """The last whole line, and where it ends."""
    start = max(0, file.seek(0, os.SEEK_END) - 2 * _BLOCK)
    file.seek(start)
    whole, newline, _ = file.read().rpartition(b"\n")
    return (whole.rpartition(b"\n")[2], start + len(whole) + 1) if newline else (None, 0)
