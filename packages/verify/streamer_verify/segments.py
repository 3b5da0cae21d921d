"""Decisions that were given out of the database, read from the files that have them."""

from __future__ import annotations

import hashlib
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from streamer_verify.bundle import Bundle
from streamer_verify.forms import form_of
from streamer_verify.values import canonical_value, line_of_segment
from streamer_verify.verifier import Verifier

Rows = Mapping[tuple[Any, ...], dict[str, Any]]
"""The rows of `give_outs`, by their keys."""

_OWN = ("root", "recorded_at", "given_out", "batch")
"""What a line has from the record, not from its segment."""


class Segments:
    """Bundles of what a record has given out. Raises `OSError` where a file cannot be read.

    Nothing is read of a file whose SHA-256 the record does not name.
    """

    def __init__(self, paths: Iterable[Path] = ()) -> None:
        self._files: dict[str, Path] = {}
        self._open: dict[str, tuple[Iterator[bytes], int]] = {}
        for path in paths:
            with path.open("rb") as file:
                self._files[hashlib.file_digest(file, "sha256").hexdigest()] = path

    def __getstate__(self) -> dict[str, Any]:
        return {"_files": self._files, "_open": {}}

    def names(self) -> dict[str, str]:
        """Return the SHA-256 of each file by its name."""
        return {path.name: digest for digest, path in self._files.items()}

    def check(self, verifier: Verifier) -> None:
        """Name the files that are none of this record's; after `verifier.control`."""
        known = {row["sha256"] for row in verifier.rows("give_outs").values()}
        for digest in self._files.keys() - known:
            verifier.fault(
                "segment",
                str(self._files[digest]),
                "the record, as far as it was read, has no give-out into it: it came later, was changed,"
                " or is of another record"
                f" (its SHA-256 is {digest})",
            )

    def filled(self, lines: Iterable[dict[str, Any]], rows: Rows) -> Iterator[dict[str, Any]]:
        """Pass lines of logs on, with what the files have in place of what was given out."""
        for line in lines:
            row = rows.get((line.get("given_out"),))
            yield line if row is None or row["sha256"] not in self._files else self._with(row, line)

    def _with(self, row: dict[str, Any], line: dict[str, Any]) -> dict[str, Any]:
        number, path = line_of_segment(row["logs"], line), self._files[row["sha256"]]
        if number is None:
            return line  # which the verifier names
        lines, at = self._open.get(row["sha256"], (iter(()), sys.maxsize))
        try:
            if number < at:
                lines, at = Bundle(path).lines("outcomes.jsonl"), 0
            found = canonical_value(next(islice(lines, number - at, None), b"{}"))
        except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"the segment {path}: {error}") from None
        self._open[row["sha256"]] = lines, number + 1
        kept, _ = form_of("outcomes", found | {name: line[name] for name in _OWN if name in line})
        same = all(found.get(name) == line[name] for name in ("source", "index", "leaf"))
        if not same or (kept and kept["facts"] and kept["facts"].get("batch") != line.get("batch")):
            return {**line, "given_out": -1}  # nothing was
        return kept or line


NO_SEGMENTS = Segments()
