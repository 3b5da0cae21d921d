"""A file of JSON lines that is only appended to, each line with a checksum: what is damaged is passed over.

Programs that are ended at any time keep what they had computed, and a line that was cut in two, or changed, is computed
again instead of believed.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from streamer.errors import Unavailable

_CHECK_BYTES = 16


def read_whole(path: Path) -> bytes:
    """Read a file that is about to be written to. A device has no end and a pipe waits forever: neither is read.

    Raises
    ------
    OSError : it cannot be read, is not there, or is no regular file.
    """
    if not path.is_dir() and not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is a device or a pipe, not a regular file", os.fspath(path))
    return path.read_bytes()


def read_lines(path: Path, *, strict_type: Any) -> list[Any]:
    """Return the values of all whole lines, in their order; none where there is no file.

    Parameters
    ----------
    strict_type : what a line holds; a line that holds anything else is passed over.
    """
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

    Raises
    ------
    Unavailable : the file cannot be written; what was written before is there.
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
    return hashlib.sha256(text).hexdigest()[:_CHECK_BYTES].encode()
