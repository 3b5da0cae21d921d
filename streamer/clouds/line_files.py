"""Files of one record a line, plain or gzip, or standard input: their lines with numbers, one in memory at a time.

A file of JSON lines that is only appended to, each line with a checksum: what is damaged is passed over.

Programs that are ended at any time keep what they had computed, and a line that was cut in two, or changed, is computed
again instead of believed.
"""

import errno
import gzip
import hashlib
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from streamer.errors import Unavailable, UsageError

MAX_LINE_BYTES = 64 * 2**20
_HEAD_BYTES = 8192


def shown_name(path: Path | str) -> str:
    """What messages call the file: its path, or ``standard input`` for ``-``."""
    return "standard input" if str(path) == "-" else str(path)


def numbered_lines(path: Path | str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file that are not blank, with their numbers from 1.

    The file is plain or gzip (detected by content, not by name), ``-`` standard input. A byte order
    mark at its beginning is passed over. Raises `UsageError` where it cannot be read, or a line is
    longer than `MAX_LINE_BYTES`.
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

    Raises `UsageError` where the file cannot be read.
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
    if raw.peek(2)[:2] == b"\x1f\x8b":
        return cast("BinaryIO", gzip.GzipFile(fileobj=raw, mode="rb"))
    return raw


def read_whole(path: Path) -> bytes:
    """Read a file that is about to be written to. A device has no end and a pipe waits forever: neither is read.

    Raises `OSError` where it cannot be read, is not there, or is no regular file.
    """
    if not path.is_dir() and not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is a device or a pipe, not a regular file", os.fspath(path))
    return path.read_bytes()


def read_lines(path: Path, *, strict_type: Any) -> list[Any]:
    """Return what all whole lines of `strict_type` hold, in order; none where there is no file."""
    decoder = msgspec.json.Decoder(strict_type)
    try:
        lines = read_whole(path).split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Unavailable(f"cannot read {path}: {error.strerror or error}") from error
    values = []
    for line in lines:
        check, _, text = line.partition(b" ")
        if check != _check(text):
            continue
        try:
            values.append(decoder.decode(text))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return values


def append_lines(path: Path, values: Iterable[Any]) -> None:
    """Write values behind what is there, making the folder; on the disk when this returns but for a power cut.

    Raises `Unavailable` where the file cannot be written; what was written before is there.
    """
    texts = [msgspec.json.encode(value) for value in values]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            # A line that an earlier run was ended in must not swallow the next one.
            file.write(b"".join([b"\n", *(_check(text) + b" " + text + b"\n" for text in texts)]))
    except OSError as error:
        raise Unavailable(
            f"cannot write {path}: {error.strerror or error}; what was written before is kept, and the same command resumes"
        ) from error


def _check(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest()[:16].encode()
