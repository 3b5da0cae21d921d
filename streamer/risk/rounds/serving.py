"""What was decided while the gate was open: in the budget period, under the policy in force, and before it.

Verdicts rest on these three stretches (`verdict`). They are read behind `reading`, of the decisions that it has read, in the
same order, and have a place of their own in the record.

Reading it again uses labels that have come since: which decisions are read, and in which order, does not depend on them.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from streamer.risk.rounds.columns import Undrawn, pieces
from streamer.risk.rounds.horizon import time_of
from streamer.risk.rounds.logged import LoggedDecision, Terms
from streamer.risk.rounds.state import MOST_DELAYS, GateWatch, ServiceState, Stretch, WatchedSequence
from streamer.risk.states import (
    AuditedDecision,
    AuditedDecisions,
    ExposurePlan,
    NotSampled,
    OpenTime,
)

Page = Callable[[int, int], Sequence[LoggedDecision]]
"""The next decisions with their labels, with numbers above the first and up to the second."""


def serve(
    before: GateWatch,
    after: GateWatch,
    ended: Sequence[WatchedSequence],
    page: Sequence[LoggedDecision],
    fetch: Page,
) -> tuple[GateWatch, bool]:
    """Read a page behind the intervals; return the watch with it, and whether there is more to read again.

    `before`, `after`: the watch before and after `reading` read its page. `ended`: sequences that
    ended on that page, in order. `page`: what it was given. `fetch`: reads decisions again, where
    this stands behind `before`.
    """
    service = _standing(before)
    again = fetch(service.read, before.read) if service.read < before.read else ()
    if again:
        page, until, behind = again, again[-1].number, True
        sequences = [] if before.sequence is None else [before.sequence]
    else:
        until, behind = after.read, False
        sequences = [*ended, *(() if after.sequence is None else (after.sequence,))]
    serving = _Serving(service, sequences, after)
    serving.read(_between(page, service.read, until))
    return replace(after, service=replace(serving.result(), read=until)), behind


def _standing(watch: GateWatch) -> ServiceState:
    """Where it stands; it begins with the present period where it has not begun, or missed the begin of that."""
    sequence, service = watch.sequence, watch.service
    begin = watch.read if sequence is None or sequence.ended is not None else sequence.first - 1
    if service is None:
        return ServiceState(read=begin)
    if service.read < min(begin, watch.read):
        return ServiceState(read=begin, delays=service.delays)
    return service


class Course:
    """The budget period's figures over time: its decisions read once more from the record, in their order.

    With the labels that are known when they are read, so what came too late for the verdict counts here.

    `watch`: where watching stood when this began; it has a sequence.
    """

    def __init__(self, watch: GateWatch) -> None:
        assert watch.sequence is not None
        self.read = watch.sequence.first - 1
        self._serving = _Serving(ServiceState(read=self.read), [watch.sequence], watch)

    def go_on(self, page: Sequence[LoggedDecision], until: int) -> Stretch | None:
        """Read decisions up to a number; returns what the period had come to then, None while the gate was not open yet."""
        self._serving.read(_between(page, self.read, until))
        self.read = until
        return self._serving.result().period


class _Row(NamedTuple):
    """One decision, or a run of them; `answers` of their shipped ones have a label."""

    decision: AuditedDecision | NotSampled
    answers: int
    policy: int
    moment: datetime


class _Serving:
    """Decisions being read."""

    def __init__(self, service: ServiceState, sequences: Sequence[WatchedSequence], watch: GateWatch) -> None:
        self._service = service
        self._coming = deque(sequences)
        self._of: WatchedSequence | None = None
        self._marks = watch.marks
        self._delays: deque[int | None] = deque(service.delays, maxlen=MOST_DELAYS)
        self._terms: dict[int, Terms] = {}
        self._rows: list[_Row] = []
        self._present: list[_Row] = []

    def read(self, decisions: Iterable[LoggedDecision | Undrawn]) -> None:
        for piece in decisions:
            if not isinstance(piece, Undrawn):
                self._read_one(piece)
            elif not self._take_run(piece):
                for one in piece.singles():
                    self._read_one(one)

    def _read_one(self, one: LoggedDecision) -> None:
        while self._coming and self._coming[0].first <= one.number:
            sequence = self._coming.popleft()
            self._of = sequence
            if sequence.number != self._service.sequence:
                self._flush()
                service = self._service
                past = (
                    service.past
                    if service.period is None
                    else (*service.past, (service.sequence, service.period))
                )
                self._service = replace(service, sequence=sequence.number, period=None, past=past)
        if self._of is None or not one.can_ship or not one.watched or one.contradictory:
            return
        if self._terms_of(one) != self._of.terms:
            return  # an older policy's, by a worker that had not heard of the newer one yet
        moment = time_of(one.number, one.decided_at, self._marks)
        if one.policy_version > self._service.policy:
            self._another_policy(one.policy_version)
        self._take(one, moment)

    def _take_run(self, run: Undrawn) -> bool:
        """Take decisions that were not drawn; False, and nothing is done, where a sequence or a stretch begins with one."""
        if self._coming and self._coming[0].first <= run.last:
            return False
        policy, version, service = run.policy, run.policy_version, self._service
        if self._of is None or not policy.can_ship or policy.terms != self._of.terms:
            return True
        if service.period is None or version > service.policy:
            return False
        present = version == service.policy
        if present and (service.present is None or run.probability < _least(service.present)):
            return False
        _, moment = run.moments(self._marks)
        row = _Row(NotSampled(run.probability, run.shipped), 0, version, moment)
        self._rows.append(row)
        if present:
            self._present.append(row)
        return True

    def result(self) -> ServiceState:
        self._flush()
        return replace(self._service, delays=tuple(self._delays))

    def _terms_of(self, one: LoggedDecision) -> Terms:
        terms = self._terms.get(one.policy_version)
        if terms is None:
            terms = self._terms[one.policy_version] = Terms.of(one.settings)
        return terms

    def _another_policy(self, version: int) -> None:
        self._flush()
        self._service = replace(self._service, policy=version, before=self._service.period, present=None)

    def _take(self, one: LoggedDecision, moment: datetime) -> None:
        service = self._service
        row = _Row(one.audited(), len(one.severities) if one.sampled else 0, one.policy_version, moment)
        if service.period is None:
            self._service = service = replace(service, period=self._fresh(row, one))
        self._rows.append(row)
        if one.policy_version == service.policy:
            if service.present is None or (one.scored and one.probability < _least(service.present)):
                # Also for a probability below what was planned for: it is known before the draw.
                self._flush()
                self._service = replace(self._service, present=self._fresh(row, one))
            self._present.append(row)
        if one.sampled and one.needed:
            arrived = one.labelled_at
            self._delays.append(None if arrived is None else max(0, int((arrived - moment).total_seconds())))

    def _fresh(self, row: _Row, one: LoggedDecision) -> Stretch:
        """A stretch that begins with this decision, which is still to be read."""
        assert self._of is not None
        plan = ExposurePlan(
            delta=self._of.terms.delta,
            least_probability=min(one.settings.audit_probability, one.probability or 1.0),
            prior_mean=self._of.terms.budget,
        )
        return Stretch(
            first_policy=row.policy,
            last_policy=row.policy,
            since=row.moment,
            until=row.moment,
            open=OpenTime.begin(plan),
        )

    def _flush(self) -> None:
        self._service = replace(
            self._service,
            period=_observed(self._service.period, self._rows),
            present=_observed(self._service.present, self._present),
        )
        self._rows, self._present = [], []


def _between(page: Sequence[LoggedDecision], after: int, until: int) -> Iterator[LoggedDecision | Undrawn]:
    """Give the decisions with numbers above `after` and up to `until`."""
    for piece in pieces(page):
        if isinstance(piece, Undrawn):
            run = piece.between(after, until)
            if run is not None:
                yield run
        elif after < piece.number <= until:
            yield piece


def _observed(stretch: Stretch | None, rows: Sequence[_Row]) -> Stretch | None:
    if stretch is None or not rows:
        return stretch
    decisions = AuditedDecisions.of_pieces(row.decision for row in rows)
    return replace(
        stretch,
        first_policy=min(stretch.first_policy, *(row.policy for row in rows)),
        last_policy=max(stretch.last_policy, *(row.policy for row in rows)),
        until=rows[-1].moment,
        open=stretch.open.observe(decisions, answers=sum(row.answers for row in rows)),
    )


def _least(stretch: Stretch) -> float:
    return stretch.open.served.plan.least_probability
