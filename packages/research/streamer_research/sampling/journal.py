"""A file of everything that was answered, one line a request, so that nothing is asked and paid for twice."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from streamer.clouds.line_files import read_whole
from streamer.errors import Unavailable, UsageError
from streamer_research.sampling.replies import Reply

SCHEMA = "streamer.sampling-journal.v1"


def read_journal(path: Path, plan: Mapping[str, Any]) -> tuple[Reply, ...]:
    """What earlier runs of a plan wrote; nothing where there is no journal. The file stays as it is.

    Raises `UsageError` where the file belongs to another plan, or is no journal.
    """
    try:
        whole = read_whole(path)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    return _parsed(path, _whole_lines(whole), plan)


class ReplyJournal:
    """The journal of one run and of those that resume it; its first line holds the plan
    (`SamplingPlan.document`). A context manager; one process at a time.

    A line that a kill cut in two is removed when the file is opened again: its answer was not kept.
    `replies` are what earlier runs wrote. Raises `UsageError` where another run writes this file,
    it belongs to another plan, or it is no journal.
    """

    def __init__(self, path: Path, plan: Mapping[str, Any]) -> None:
        self._path = path
        try:
            self._file = path.open("a+b", buffering=0)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
        try:
            self._lock()
            self._file.seek(0)
            whole = self._file.read()
            lines = _whole_lines(whole)
            self.replies = _parsed(path, lines, plan)
            if (kept := sum(len(line) + 1 for line in lines)) < len(whole):
                self._file.truncate(kept)
            if not lines:
                self._write(_line({"schema": SCHEMA, "plan": plan}))
        except BaseException:
            self._file.close()
            raise

    def append(self, replies: Sequence[Reply]) -> None:
        """Write replies; when this returns they are on the disk.

        Raises `Unavailable` where the disk does not take them.
        """
        if replies:
            self._write(b"".join(_line(reply.document()) for reply in replies))

    def close(self) -> None:
        """Close the file, and let another run have it."""
        self._file.close()

    def __enter__(self) -> ReplyJournal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another run writes {self._path}: wait for it, or give this one another --out"
            ) from None

    def _write(self, text: bytes) -> None:
        rest = memoryview(text)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise Unavailable(
                f"cannot write {self._path}: {error.strerror or error}; what it holds is kept, and the same command "
                "goes on from there"
            ) from error


def _whole_lines(whole: bytes) -> list[bytes]:
    """The lines that have an end."""
    return whole.split(b"\n")[:-1]


def _parsed(path: Path, lines: Sequence[bytes], plan: Mapping[str, Any]) -> tuple[Reply, ...]:
    if not lines:
        return ()
    try:
        first = json.loads(lines[0])
        ours, before = first["schema"] == SCHEMA, first["plan"]
    except (ValueError, KeyError, TypeError):
        ours, before = False, None
    if not ours:
        raise UsageError(f"{path} is not a journal of this program; give another --out, or move the file")
    now = json.loads(json.dumps(plan))
    if before != now:
        raise UsageError(
            f"{path} belongs to another run ({_difference(before, now)}): repeat that run's options to go on with it, "
            "or give another --out"
        )
    return tuple(_reply(path, number, line) for number, line in enumerate(lines[1:], 2))


def _reply(path: Path, number: int, line: bytes) -> Reply:
    try:
        return Reply.from_document(json.loads(line))
    except (ValueError, msgspec.ValidationError) as error:
        raise UsageError(
            f"{path}, line {number} is damaged ({error}): restore the file, or remove this line to have its answers "
            "asked for again"
        ) from None


def _line(document: Mapping[str, Any]) -> bytes:
    # Escapes alone: half a surrogate pair, which some endpoints return, has no UTF-8.
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"


def _difference(before: Any, now: Any) -> str:
    if not isinstance(before, dict):
        return "its first line says something else"
    parts = []
    recipes = before.get("recipe") or {}, now["recipe"]
    parts += [
        f"{name} was {recipes[0].get(name)!r}, is {value!r}"
        for name, value in recipes[1].items()
        if recipes[0].get(name) != value
    ]
    for name, words in (
        ("arms", "other models, endpoints or temperatures"),
        ("prompts", "other prompts"),
        ("instructions", "another version's instructions"),
    ):
        if before.get(name) != now[name]:
            parts.append(words)
    return "; ".join(parts) or "its first line says something else"
