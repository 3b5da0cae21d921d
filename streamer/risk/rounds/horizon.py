"""How far the record may be read without missing a row that is still to come, and how old a decision is.

Decisions are read in the order of their numbers. A number is taken before its transaction commits, so a row with a
lower number may appear after one with a higher number. A *watermark* records, at
a moment of our clock, the largest number present and the transaction id below which all had begun. Once all of those have ended, no
lower number can appear any more, and reading may go that far. Nothing blocks, and no lag has to be guessed.

Watermarks also date a decision without trusting the clock of the worker that made it. What was there at one mark
and not at the one before was made between the two: its own time is cut to that. So a worker whose clock is a day off
neither makes its labels overdue nor holds up the rest, while what was decided before watching began keeps its own time.
"""

from bisect import bisect_left
from collections.abc import Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import NamedTuple

MOST_MARKS = 64
"""Marks that are kept at most: fewer marks cut a decision's time to a wider range, and lose nothing else."""

_MOST_PENDING = 8


class Watermark(NamedTuple):
    """What there was at one moment.

    `decisions`, `labels`: the largest numbers that were there. `transactions`: every transaction
    with an id below this one had begun; 0 where there is no concurrent writer. `at`: our clock.
    """

    decisions: int
    labels: int
    transactions: int
    at: datetime


class Probe(NamedTuple):
    """How far the record reaches now: as in `Watermark`, and `ended`: every transaction with an id below it has ended."""

    decisions: int
    labels: int
    transactions: int
    ended: int


def marked(marks: tuple[Watermark, ...], probe: Probe, now: datetime) -> tuple[Watermark, ...]:
    """Add what a probe found to the marks, the oldest first.

    A clock of ours that was set back takes the marks with it; transaction ids that start again, as they do in a
    restored database, are taken from the probe.
    """
    kept = [
        mark._replace(at=min(mark.at, now), transactions=min(mark.transactions, probe.transactions))
        for mark in marks
    ]
    new = Watermark(probe.decisions, probe.labels, probe.transactions, now)
    if kept and kept[-1][:2] == new[:2] and settled_number(tuple(kept), probe) == kept[-1]:
        # Nothing came: what comes next comes after now.
        if len(kept) > 1 and kept[-2][:2] == new[:2]:
            kept.pop()
        return (*kept, new._replace(transactions=kept[-1].transactions))
    pending = [mark for mark in kept if mark.transactions > probe.ended]
    if len(pending) >= _MOST_PENDING:
        kept.pop()
    return (*kept, new)


def joined(kept: tuple[Watermark, ...], seen: tuple[Watermark, ...]) -> tuple[Watermark, ...]:
    """Add to the marks that a gate keeps those that were seen since, of the same record."""
    if not kept:
        return seen
    last = kept[-1]
    return (*kept, *(mark for mark in seen if (*mark[:2], mark.at) > (*last[:2], last.at)))


def settled_number(marks: tuple[Watermark, ...], probe: Probe) -> Watermark | None:
    """Return the newest mark up to which nothing can appear any more; None where there is none yet."""
    settled = [mark for mark in marks if mark.transactions <= probe.ended]
    return settled[-1] if settled else None


def pruned(marks: tuple[Watermark, ...], read: int) -> tuple[Watermark, ...]:
    """Leave out marks that no decision still to be read needs; of too many, every second one."""
    first = max((place for place, mark in enumerate(marks) if mark.decisions <= read), default=0)
    kept = marks[first:]
    while len(kept) > MOST_MARKS:
        # The newest ones stay: the last may be the only one that is not settled yet.
        kept = (*kept[:-_MOST_PENDING:2], *kept[-_MOST_PENDING:])
    return kept


def in_utc(moment: datetime) -> datetime:
    """Return a moment with its time zone, where it may be in UTC and not say so."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def time_of(number: int, said: datetime, marks: tuple[Watermark, ...]) -> datetime:
    """Cut a decision's own time to what the marks say of when it was made."""
    place = bisect_left(marks, number, key=attrgetter("decisions"))
    moment = max(said, marks[place - 1].at) if place else said
    return min(moment, marks[place].at) if place < len(marks) else moment


def latest_of(
    numbers: Sequence[int], said: Sequence[datetime], marks: tuple[Watermark, ...]
) -> tuple[datetime, datetime]:
    """Return the latest and the last time of consecutive decisions, of which there is at least one; `said` as `in_utc` has it."""
    last = time_of(numbers[-1], in_utc(said[-1]), marks)
    places = [bisect_left(marks, number, key=attrgetter("decisions")) for number in (numbers[0], numbers[-1])]
    if places[0] == places[1]:  # all are cut to the same range
        return time_of(numbers[-1], in_utc(max(said)), marks), last
    return max(
        time_of(number, in_utc(moment), marks) for number, moment in zip(numbers, said, strict=True)
    ), last
