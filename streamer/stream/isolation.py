"""A record that always fails: found by halving its group, and refused alone.

The decoders refuse what is wrong with a message by name. This is for what they do not foresee: an error that some
record's content raises in the decider or in the commit. One such record must neither end the worker, which would end the
next one as well, nor keep its partition waiting forever.

What another record could raise just as well is not content: `Unavailable` is waited for before it comes here, and
the other errors that this package raises on purpose (a lost lease, a missing table) and those of the operating system
end the worker as they always did. Whatever else comes up is blamed on a record. Should it be a fault that every record
meets, the cap on dead letters halts the worker, and no record is lost: dead letters can be replayed.
"""

import hashlib
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TypeVar

import structlog

from streamer.errors import BadData, StreamerError
from streamer.journal import OutcomeKind, Record
from streamer.stream.intake import Run

log = structlog.get_logger(__name__)
T = TypeVar("T")

_PACKAGE = __name__.partition(".")[0]


class ContentError(Exception):
    """The decider or the journal failed in a way that is blamed on a record. `detail` never
    quotes it: the error's type, and where in this package it was raised; `BadData` by its own
    text."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


Refuse = Callable[..., Awaitable[None]]
"""Records the refusal of a run's only record, given the run and a detail, and where it is `withheld` without its bytes; may
raise `ContentError`."""


def blaming_content(call: Callable[[], T]) -> Callable[[], T]:
    """Return `call` with the errors of content raised as `ContentError`, all others as they are."""

    def blaming() -> T:
        try:
            return call()
        except BadData as error:
            raise ContentError(str(error)) from None
        except (StreamerError, OSError, ImportError):
            raise
        except Exception as error:
            raise ContentError(_described(error)) from None

    return blaming


async def commit_isolating(
    runs: list[Run], commit: Callable[[list[Run]], Awaitable[None]], refuse: Refuse
) -> bool:
    """Commit `runs`, each of a record at least; where a record's content prevents it, commit the
    others and refuse that one. Returns whether all went through at once.

    `commit` decides and commits some runs; it raises `ContentError` before anything is written, or
    not at all. Halves are committed in the order of their records, so that each partition moves on
    offset by offset. `refuse` is called for a single record that failed twice, and again, without
    its bytes, if that fails too; if that cannot be recorded either, which is no matter of content,
    `ContentError` is raised.
    """
    try:
        await commit(runs)
    except ContentError as error:
        failed = error
    else:
        return True
    if sum(len(run.records) for run in runs) > 1:
        for half in halves(runs):
            await commit_isolating(half, commit, refuse)
        return False
    try:
        await commit(runs)  # a transient failure, such as a lack of memory, deserves another attempt
    except ContentError as error:
        failed = error
    else:
        return False
    await _refuse(runs[0], failed.detail, refuse)
    return False


async def _refuse(run: Run, detail: str, refuse: Refuse) -> None:
    record = run.records[0]
    log.error(
        "stream.record_refused",
        topic=record.partition.topic,
        partition=record.partition.number,
        offset=record.offset,
        error=detail,
    )
    try:
        await refuse(run, detail, withheld=False)
    except ContentError as error:
        content = record.value or b""
        left_out = f"value of {len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()}, left out"
        await refuse(run, f"{detail}; {left_out}: {error.detail}", withheld=True)


def halves(runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Split runs of two records or more, in their order; one run may be cut in two."""
    left = sum(len(run.records) for run in runs) // 2
    first: list[Run] = []
    second: list[Run] = []
    for run in runs:
        here = min(left, len(run.records))
        left -= here
        if here == len(run.records):
            first.append(run)
        elif here == 0:
            second.append(run)
        else:
            head = replace(run, records=run.records[:here], size=0)
            rest = replace(run, expected_offset=head.next_offset, records=run.records[here:], size=0)
            first.append(head)
            second.append(rest)
    return first, second


def without_bytes(record: Record) -> Record:
    """The record by its place alone, as it may be kept where its bytes cannot."""
    return replace(record, key=None, value=None, headers=())


def _described(error: Exception) -> str:
    """An error's type and the last place of ours that it passed; its text may quote people's texts."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        parts = PurePath(frame.filename).parts
        if _PACKAGE in parts[:-1]:
            inside = parts[len(parts) - 1 - parts[::-1].index(_PACKAGE) :]
            return f"{name} in {'/'.join(inside)}, line {frame.lineno}"
    return name


_REFUSED = frozenset({"dead_letter", "conflict"})


@dataclass(frozen=True, slots=True)
class DeadLetterLimits:
    """The caps, past one of which the worker halts: refused records in a row, `run` >= 1, and
    their share, `ratio` in (0, 1], among the last `window` >= 1 ones, judged only once so many
    were seen."""

    run: int = 1000
    ratio: float = 0.5
    window: int = 10_000

    def __post_init__(self) -> None:
        if self.run < 1 or self.window < 1 or not 0 < self.ratio <= 1:
            raise ValueError("dead-letter limits: run >= 1, window >= 1, 0 < ratio <= 1")


class DeadLetterCap:
    """Counts outcomes as they are committed."""

    def __init__(self, limits: DeadLetterLimits) -> None:
        self._limits = limits
        self._recent: deque[bool] = deque(maxlen=limits.window)
        self._refused = 0
        self._run = 0

    def passed(self, kinds: Iterable[OutcomeKind]) -> str | None:
        """Count these; returns which cap was exceeded, in words, or None."""
        reason: str | None = None
        for kind in kinds:
            refused = kind in _REFUSED
            if len(self._recent) == self._limits.window:
                self._refused -= self._recent[0]
            self._recent.append(refused)
            self._refused += refused
            self._run = self._run + 1 if refused else 0
            if self._run > self._limits.run:
                reason = f"more than {self._limits.run} records in a row were refused"
            elif (
                len(self._recent) == self._limits.window
                and self._refused > self._limits.ratio * self._limits.window
            ):
                reason = (
                    f"{self._refused} of the last {self._limits.window} records were refused "
                    f"(the cap is {self._limits.ratio:.0%})"
                )
        return reason
