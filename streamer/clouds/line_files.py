"""Files of one record a line, plain or gzip, or standard input: their lines with numbers, one in memory at a time."""

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from streamer.errors import UsageError

GZIP_MAGIC = b"\x1f\x8b"
MAX_LINE_BYTES = 64 * 2**20
_HEAD_BYTES = 8192


def shown_name(path: Path | str) -> str:
    """What messages call the file: its path, or ``standard input`` for ``-``."""
    return "standard input" if str(path) == "-" else str(path)


def numbered_lines(path: Path | str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file that are not blank, with their numbers from 1.

    Parameters
    ----------
    path : a file, plain or gzip (detected by content, not by name), or ``-`` for standard input. A byte order
        mark at its beginning is passed over.

    Raises
    ------
    UsageError : the file cannot be read, or a line is longer than `MAX_LINE_BYTES`.
    """
    name = shown_name(path)
    with opened(path, name) as stream:
        number = 0
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise UsageError(
                    f"{name}, line {number} is longer than {MAX_LINE_BYTES // 2**20} MiB; write one record a line"
                )
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if line.strip():
                yield number, line


def is_publishable(text: str) -> bool:
    """Report whether an event may carry this text: no NUL, no half of a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def head_of(path: Path | str) -> bytes:
    """Return a file's first line and some bytes more, unpacked; of standard input what waits there, which it keeps.

    Raises
    ------
    UsageError : the file cannot be read.
    """
    name = shown_name(path)
    with opened(path, name) as stream:
        if str(path) == "-":
            return _waiting(stream)
        head = stream.readline(MAX_LINE_BYTES)
        return head + stream.read(_HEAD_BYTES)


def _waiting(stream: BinaryIO) -> bytes:
    raw = cast("io.BufferedReader", sys.stdin.buffer)
    head = raw.peek(_HEAD_BYTES)
    if stream is raw:
        return head
    return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, 8 * _HEAD_BYTES)


@contextmanager
def opened(path: Path | str, name: str) -> Iterator[BinaryIO]:
    """Open a file, plain or gzip, or standard input, and turn what goes wrong while it is read into `UsageError`."""
    try:
        if str(path) == "-":
            yield _unzipped(cast("io.BufferedReader", sys.stdin.buffer))
        else:
            with Path(path).open("rb") as raw:
                yield _unzipped(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UsageError(f"{name} is a damaged gzip file ({error}); fetch it again") from error
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror or error}") from error


def _unzipped(raw: io.BufferedReader) -> BinaryIO:
    if raw.peek(2)[:2] == GZIP_MAGIC:
        return cast("BinaryIO", gzip.GzipFile(fileobj=raw, mode="rb"))
    return raw
