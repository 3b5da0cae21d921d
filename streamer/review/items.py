"""What the review page asks of a store: the next drawn answer for one person, and its severity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from streamer.errors import StreamerError


class UnknownItem(StreamerError):
    """The page speaks of an item that this person was never shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewer:
    """One open page of one person, 1 to 200 characters; its random name, 1 to 64, tells two pages
    of one person apart.
    """

    labeller: str
    holder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewItem:
    """An answer to judge, without what the gate or anyone else decided about it.

    `token` : what the page calls it; tells nothing of batch, attempt or place. `text` : as it would
    go out; `came` : as it came, where that is another; `judged` : what of it is judged, where that
    is not all of it: field by field its JSON Pointer, its value, and whether other answers say
    otherwise. `claim` : `text` before the claim to judge, that, and behind it; empty: all of it is
    judged. `until_wrong` : once a claim of the answer is worst, no other of it is asked for.
    `others` : how many other answers the batch has.

    `marks` : how many severities this person has given to it already; a page counts on from here.
    `severity` : the last of them, in [0, 1]; None when there is none. `wrong` : JSON Pointers of
    the fields that got one above 0 with it.
    """

    token: str
    gate: str
    kind: str
    prompt: str
    text: str
    references: tuple[str, ...]
    others: int
    came: str | None = None
    claim: tuple[str, ...] = ()
    until_wrong: bool = False
    judged: tuple[tuple[str, str, bool], ...] = ()
    skipped: bool = False
    marks: int = 0
    severity: float | None = None
    wrong: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """What three severities mean at a gate, for whoever labels; where one is None the page's own text stands."""

    fine: str | None = None
    half: str | None = None
    worst: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A severity in [0, 1], 0 = fine, that a person gave.

    `name` : the page's random name for it, 1 to 64 characters: when the page sends it again it is
    still one mark. `count` : 1 for the page's first mark of this item, one more for each that
    replaces it; one that was overtaken changes nothing. `remark` : 1 to 500 characters; None:
    nothing. `wrong` : JSON Pointers of fields whose severity is 1.
    """

    token: str
    severity: float
    name: str
    count: int
    remark: str | None = None
    wrong: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What the gate decided about an answer: shown only to people who have labelled it.

    `action` : of this answer: `ship`, or what the gate did in place of it; `reason` is of its
    batch. `score` : in [0, 1], higher is safer; None when the batch was not scored. `threshold` :
    lambda, where this answer's own score was compared with it. `enforced` : False in mode `shadow`.
    """

    action: str
    reason: str
    score: float | None
    threshold: float | None
    policy_version: int
    enforced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GateProgress:
    """The state of one gate's queue: drawn answers that nobody has labelled and whose text is kept.

    Of these another page has `held` at the moment, and this person has `skipped` some; `textless`
    cannot be shown.
    """

    gate: str
    waiting: int
    held: int
    skipped: int
    textless: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalibrating:
    """A gate's next recalibration comes with `wanted` batches that were labelled, or got a higher
    label, since the last.
    """

    labelled: int
    wanted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the work is, and how many answers this person has labelled since the moment that was
    asked about.
    """

    gates: tuple[GateProgress, ...]
    done: int


class ReviewStore(Protocol):
    """Where drawn answers come from and labels go to. Calls block; several processes may share one database.

    Every call raises `Unavailable` when the database is unavailable.
    """

    def next(
        self, reviewer: Reviewer, gates: Sequence[str], *, hold: timedelta, now: datetime
    ) -> ReviewItem | None:
        """Claim the oldest decision's answer that nobody labelled or has, what this person skipped last.

        A page that has a claim gets the same item again. None when nothing is left.
        """
        ...

    def refusals(self, labeller: str, gates: Sequence[str]) -> Mapping[str, str]:
        """Say of which of these gates this person's labels would not be read, and why."""
        ...

    def others(self, reviewer: Reviewer, token: str) -> list[str]:
        """Return the texts of the batch's other answers. Raises `UnknownItem`."""
        ...

    def mark(self, reviewer: Reviewer, mark: Mark, *, now: datetime) -> Decided:
        """Store a severity, seal it and give the claim up. Safe to repeat. Raises `UnknownItem`."""
        ...

    def skip(self, reviewer: Reviewer, token: str, *, now: datetime) -> None:
        """Move an item to the end of this person's queue, and give up the claim."""
        ...

    def back(
        self, reviewer: Reviewer, gates: Sequence[str], *, before: str | None, since: datetime
    ) -> ReviewItem | None:
        """Return what this person labelled last, or last before the item `before`, but not before `since`."""
        ...

    def renew(self, reviewer: Reviewer, token: str, *, hold: timedelta, now: datetime) -> bool:
        """Keep a claim for longer; False when it is no longer this page's."""
        ...

    def release(self, reviewer: Reviewer) -> None:
        """Release this page's claim: the person leaves."""
        ...

    def progress(
        self, reviewer: Reviewer, gates: Sequence[str], *, since: datetime, now: datetime
    ) -> Progress:
        """Count what waits, and what this person has labelled since a moment."""
        ...
