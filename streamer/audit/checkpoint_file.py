"""A file of checkpoints outside the database: one JSON value a line, only ever appended to."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_BLOCK = 65_536


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
            return _last_line(file)

    def append(self, values: Sequence[bytes], *, after: bytes | None) -> bool:
        """Add lines and make them last. Raises `OSError`.

        Returns False, and writes nothing, when the last line is not `after` any more: another process was faster.
        """
        with self._open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _last_line(file) != after:
                return False
            os.ftruncate(file, _whole(file))
            data = b"".join(value + b"\n" for value in values)
            while data:
                data = data[os.write(file, data) :]
            os.fsync(file)
        return True

    @contextmanager
    def _open(self) -> Iterator[int]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            yield file
        finally:
            os.close(file)


def _whole(file: int) -> int:
    """Where the last whole line ends."""
    end = os.fstat(file).st_size
    while end > 0:
        start = max(0, end - _BLOCK)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _last_line(file: int) -> bytes | None:
    end = _whole(file) - 1
    if end < 0:
        return None
    start, line = end, b""
    while start > 0:
        block = max(0, start - _BLOCK)
        line = os.pread(file, start - block, block) + line
        found = line.rfind(b"\n")
        if found >= 0:
            return line[found + 1 :]
        start = block
    return line
