"""A page of decisions in columns: most were not drawn, and of those a whole run is read at once.

Single decisions are made when they are asked for. Whether a stage takes a run at once or its decisions one by one gives the
same state to the last bit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import NamedTuple, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamer.gates.settings import GateSettings
from streamer.risk.rounds.horizon import Watermark, in_utc, latest_of
from streamer.risk.rounds.logged import LoggedDecision, Terms
from streamer.scoring.cloud import STATISTICS

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class PolicyFacts(NamedTuple):
    """What reading needs of a policy: its settings and their terms, its calibration run, and whether it ships anything."""

    settings: GateSettings
    terms: Terms
    run: int | None
    can_ship: bool


class LoggedColumns(NamedTuple):
    """Decisions as they come from the record, a column each; the rest is as in `LoggedDecision`.

    `decided_at`: with a time zone, or else in UTC: all with or all without. `cloud`: JSON.
    """

    number: Sequence[int] = ()
    batch_id: Sequence[str] = ()
    policy_version: Sequence[int] = ()
    decided_at: Sequence[datetime] = ()
    sampled: Sequence[bool] = ()
    probability: Sequence[float] = ()
    cloud: Sequence[str | None] = ()
    scored: Sequence[bool] = ()
    shipped: Sequence[float] = ()
    score: Sequence[float | None] = ()
    drawn: Sequence[int] = ()
    needed: Sequence[int] = ()
    needed_budget: Sequence[float | None] = ()


class LoggedDecisions(Sequence[LoggedDecision]):
    """Decisions of a gate, in the order of their numbers.

    `columns`: as the record has them; None: there are none. `policies`: the facts of the policies
    that made them, by version.
    """

    def __init__(
        self, columns: LoggedColumns | None = None, policies: Mapping[int, PolicyFacts] | None = None
    ) -> None:
        columns = LoggedColumns() if columns is None else columns
        self._columns = columns
        self._policies = policies or {}
        self._known: dict[int, LoggedDecision] = {}
        self.numbers = columns.number
        self.batch_ids = columns.batch_id
        self.policy_versions = columns.policy_version
        self.decided_at = columns.decided_at
        self.scores: Floats = np.array(columns.score, dtype=np.float64)  # NaN where it was not scored
        self.sampled: Flags = np.array(columns.sampled, dtype=np.bool_)
        self.probability: Floats = np.array(columns.probability, dtype=np.float64)
        self.scored: Flags = np.array(columns.scored, dtype=np.bool_)
        self.shipped: Floats = np.array(columns.shipped, dtype=np.float64)

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> LoggedDecision: ...
    @overload
    def __getitem__(self, place: slice) -> list[LoggedDecision]: ...
    def __getitem__(self, place: int | slice) -> LoggedDecision | list[LoggedDecision]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        of = self._columns
        number = of.number[place]
        known = self._known.get(number)
        if known is not None:
            return known
        policy = self._policies[of.policy_version[place]]
        cloud = of.cloud[place]
        return LoggedDecision(
            number=number,
            batch_id=of.batch_id[place],
            policy_version=of.policy_version[place],
            settings=policy.settings,
            run=policy.run,
            can_ship=policy.can_ship,
            decided_at=in_utc(of.decided_at[place]),
            scored=of.scored[place],
            sampled=of.sampled[place],
            probability=of.probability[place],
            shipped=of.shipped[place],
            score=of.score[place],
            cloud=None if cloud is None else tuple(msgspec.json.decode(cloud)),
            drawn=of.drawn[place],
            needed=of.needed[place],
            needed_budget=of.needed_budget[place] if of.needed_budget else None,
        )

    def with_known(self, decisions: Iterable[LoggedDecision]) -> LoggedDecisions:
        """Return the same with what is known of these in place of what the rows say."""
        same = copy(self)
        same.__dict__.pop("_all_pieces", None)
        same._known = {one.number: one for one in decisions}
        return same

    def drawn(self) -> list[LoggedDecision]:
        """Return those that the audit sample took."""
        return [self[int(place)] for place in np.flatnonzero(self.sampled)]

    def asked(self) -> list[LoggedDecision]:
        """Return those that shipped something that a label is asked for: of the audit sample, or of a judge."""
        wanted = (self.sampled | self._judged) & (self.shipped > 0)
        return [self[int(place)] for place in np.flatnonzero(wanted)]

    def policy(self, place: int) -> PolicyFacts:
        """Return the facts of the policy that made the decision at a place."""
        return self._policies[self.policy_versions[place]]

    def of_one_policy(self) -> Iterator[range]:
        """Give the places of decisions that one policy made one after the other."""
        yield from self._pieces(np.diff(self._versions) != 0)

    def pieces(self) -> Sequence[LoggedDecision | Undrawn]:
        """Return runs of decisions that were not drawn, and the decisions between them, in order."""
        return self._all_pieces

    @cached_property
    def _all_pieces(self) -> list[LoggedDecision | Undrawn]:
        found: list[LoggedDecision | Undrawn] = []
        change = (np.diff(self._versions) != 0) | (np.diff(self.probability) != 0)
        change |= self._plain[1:] != self._plain[:-1]
        for piece in self._pieces(change):
            if self._plain[piece.start]:
                found.append(Undrawn(self, piece))
            else:
                found += self[piece.start : piece.stop]
        return found

    @cached_property
    def clouds(self) -> tuple[Flags, Floats]:
        """Which of them have the numbers of the embedding cloud on record, and these: shapes (n,) and (n, statistics)."""
        found = msgspec.json.decode(f"[{','.join(one or 'null' for one in self._columns.cloud)}]")
        there = np.array([one is not None and len(one) == len(STATISTICS) for one in found], dtype=np.bool_)
        numbers = np.zeros((len(found), len(STATISTICS)))
        if there.any():
            kept = chain.from_iterable(one for one, has in zip(found, there.tolist(), strict=True) if has)
            numbers[there] = np.fromiter(kept, np.float64).reshape(-1, len(STATISTICS))
        return there, numbers

    @cached_property
    def _versions(self) -> NDArray[np.int64]:
        return np.array(self.policy_versions, dtype=np.int64)

    @cached_property
    def _judged(self) -> Flags:
        return self._of_policy(
            lambda facts: facts.settings.judge_kind is not None or facts.settings.early == "signals"
        )

    @cached_property
    def _plain(self) -> Flags:
        """Not drawn, though it could have been, and neither a judge nor an early warning reads it."""
        watched = self._of_policy(lambda facts: facts.settings.audit_probability > 0)
        could = (self.probability > 0) & (self.probability < 1)
        return self.scored & ~self.sampled & could & watched & ~self._judged

    def _of_policy(self, says: Callable[[PolicyFacts], bool]) -> Flags:
        marked = [version for version, facts in self._policies.items() if says(facts)]
        return np.isin(self._versions, marked)

    def _pieces(self, change: Flags) -> Iterator[range]:
        if not len(self):
            return
        ends = [*(np.flatnonzero(change) + 1).tolist(), len(self)]
        for start, stop in zip([0, *ends], ends, strict=False):
            yield range(start, stop)


class Undrawn:
    """Consecutive decisions of one policy that were up for the audit draw at one probability, and
    were not drawn: their places on a page.
    """

    __slots__ = ("_moments", "page", "places")

    def __init__(self, page: LoggedDecisions, places: range) -> None:
        self.page = page
        self.places = places
        self._moments: tuple[tuple[Watermark, ...], tuple[datetime, datetime]] | None = None

    def __len__(self) -> int:
        return len(self.places)

    @property
    def first(self) -> int:
        """The number of the first."""
        return self.page.numbers[self.places[0]]

    @property
    def last(self) -> int:
        """The number of the last."""
        return self.page.numbers[self.places[-1]]

    @property
    def policy_version(self) -> int:
        """The policy that made them."""
        return self.page.policy_versions[self.places[0]]

    @property
    def policy(self) -> PolicyFacts:
        """The facts of that policy."""
        return self.page.policy(self.places[0])

    @property
    def probability(self) -> float:
        """The chance that each was drawn with."""
        return float(self.page.probability[self.places[0]])

    @property
    def shipped(self) -> list[float]:
        """The share of its responses that each shipped."""
        shares: list[float] = self.page.shipped[self.places.start : self.places.stop].tolist()
        return shares

    def singles(self) -> list[LoggedDecision]:
        """Return them one by one."""
        return self.page[self.places.start : self.places.stop]

    def after(self, number: int) -> LoggedDecision | None:
        """Return the first with a larger number; None where there is none."""
        place = bisect_right(self.page.numbers, number, self.places.start, self.places.stop)
        return self.page[place] if place < self.places.stop else None

    def between(self, after: int, until: int) -> Undrawn | None:
        """Return those with numbers above `after` and up to `until`; None where there are none."""
        if after < self.first and self.last <= until:
            return self
        start, stop = (
            bisect_right(self.page.numbers, number, self.places.start, self.places.stop)
            for number in (after, until)
        )
        return Undrawn(self.page, range(start, stop)) if start < stop else None

    def moments(self, marks: tuple[Watermark, ...]) -> tuple[datetime, datetime]:
        """Return when the latest and the last of them were made; see `horizon.time_of`."""
        known = self._moments
        if known is None or known[0] is not marks:
            start, stop = self.places.start, self.places.stop
            found = latest_of(self.page.numbers[start:stop], self.page.decided_at[start:stop], marks)
            self._moments = known = marks, found
        return known[1]


def pieces(decisions: Sequence[LoggedDecision]) -> Iterable[LoggedDecision | Undrawn]:
    """Give decisions in order, in runs where they are in columns."""
    return decisions.pieces() if isinstance(decisions, LoggedDecisions) else decisions
