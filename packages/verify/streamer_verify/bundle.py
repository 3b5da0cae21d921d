"""The files of a bundle, a folder or a .zip, read as what anybody may have made."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from streamer_verify.forms import form_of, wrong_form
from streamer_verify.values import canonical_value, sha256, strict_json

FILES = ("control.jsonl", "outcomes.jsonl", "heads.jsonl", "checkpoints.jsonl", "unchained.jsonl")

MOST_LINE = 2**28
"""Bytes of one line: more than the longest run has inputs for, and little enough to be read."""

MOST_PACKED = 100
"""How many times its size a .zip may have when it is unpacked. Records have ten."""


def _at_most(data: bytes, what: str) -> bytes:
    if len(data) > MOST_LINE:
        raise ValueError(f"{what} is longer than {MOST_LINE} bytes")
    return data


def _refuse_bomb(packed: zipfile.ZipFile, size: int) -> None:
    """Refuse a .zip that unpacks to far more than a record would: nobody could read to its end. No more than it says comes out."""
    unpacked = 0
    for entry in packed.infolist():
        if entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{entry.filename} is neither stored nor deflated")
        unpacked += entry.file_size
    if unpacked > MOST_PACKED * size + MOST_LINE:
        raise ValueError(f"it has {size} bytes and would be {unpacked} unpacked, which no record is")


class Bundle:
    """The files of a bundle. Raises `ValueError` when it is none.

    `manifest` is as it was read, `digest` the SHA-256 of its bytes, which names everything in the bundle, `at` what is being
    read, and `lengths` how many lines each file has that `damaged` has read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._zip = None
        self.at = "the directory of the .zip"
        self.lengths: dict[str, int] = {}
        if path.is_file():
            self._zip = zipfile.ZipFile(path)
            _refuse_bomb(self._zip, path.stat().st_size)
        self._malformed: dict[str, dict[int, dict[str, Any] | None]] = {name: {} for name in FILES}
        self._compared: set[str] = set()
        self.at = "manifest.json"
        with self._open("manifest.json") as file:
            manifest = _at_most(file.read(MOST_LINE + 1), "manifest.json")
        self.digest = sha256(manifest)
        self.manifest = strict_json(manifest)
        if wrong := wrong_form("manifest", self.manifest):
            raise ValueError(f"{wrong[0][1:] or 'it'} {wrong[1]}")

    def _open(self, name: str) -> io.BufferedReader:
        if self._zip is None:
            return (self.path / name).open("rb")
        packed: Any = self._zip.open(name)
        return io.BufferedReader(packed)

    def _chunks(self, name: str) -> Iterator[bytes]:
        with self._open(name) as file:
            while line := file.readline(MOST_LINE + 1):
                yield _at_most(line, "a line")

    def damaged(self) -> list[str]:
        """Names of files that are not those that the manifest describes."""
        found = []
        for name in FILES:
            self.at, digest, lines = name, hashlib.sha256(), 0
            for chunk in self._chunks(name):
                digest.update(chunk)
                lines += 1
            self.lengths[name] = lines
            if self.manifest["files"][name] != {"sha256": digest.hexdigest(), "lines": lines}:
                found.append(name)
        return found

    def lines(self, name: str) -> Iterator[bytes]:
        """Iterate over the lines of a file, without their ends."""
        for number, line in enumerate(self._chunks(name), 1):
            self.at = f"{name}, line {number}"
            yield line.rstrip(b"\n")

    def values(
        self, name: str, fault: Callable[[str, str, str], None] = lambda *_: None
    ) -> Iterator[dict[str, Any]]:
        """Iterate over the values of a file, as `formed` does; their forms are compared the first time."""
        numbered = enumerate(self.lines(name), 1)
        yield from self.some_values(name, numbered, fault, again=name in self._compared)
        self._compared.add(name)

    def some_values(
        self,
        name: str,
        numbered: Iterable[tuple[int, bytes]],
        fault: Callable[[str, str, str], None],
        *,
        again: bool,
    ) -> Iterator[dict[str, Any]]:
        """Iterate over the values of some lines; with `again` their forms were compared before."""
        malformed = self._malformed[name]
        for number, line in numbered:
            value = canonical_value(line)
            if not again:
                kept, wrong = form_of(name.removesuffix(".jsonl"), value)
                if wrong:
                    malformed[number] = kept
                if kept is None:
                    fault("form", f"{name}, line {number}", wrong)
            else:
                kept = malformed.get(number, value)
            if kept is not None:
                yield kept
