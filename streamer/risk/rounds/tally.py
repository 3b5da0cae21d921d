"""The bets that the verdict of a budget period rests on: every decision as soon as it is on record, labelled or not."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar

from streamer.risk.rounds.columns import Undrawn
from streamer.risk.rounds.horizon import Watermark, time_of
from streamer.risk.rounds.logged import LoggedDecision, Terms
from streamer.risk.states import json_form
from streamer.risk.states.verdict_bets import Mark, VerdictBets


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally(json_form.State):
    """What was decided in one budget period while the gate was open.

    `first`: number of its first decision. `terms`: another of any of these is another tally.
    `since_policy`: the policy of its first decision; what an older one decided late under other
    terms is not read. `began_at`: when the period began. `newest`: when the newest decision was
    made. `bets`: what it comes to.
    """

    json_kind: ClassVar[str] = "streamer.monitoring.tally.v1"

    first: int
    terms: Terms
    since_policy: int
    began_at: datetime
    newest: datetime
    bets: VerdictBets


class TallyReader:
    """One page being read; the result does not depend on how decisions are cut into pages."""

    def __init__(self, tally: Tally | None, marks: tuple[Watermark, ...]) -> None:
        self._tally = tally
        self._times = marks
        self._begin()

    def _begin(self) -> None:
        self._marks: list[Mark] = []
        self._held = self._decisions = self._served = 0
        self._shipped = 0.0

    def read(self, piece: LoggedDecision | Undrawn) -> None:
        """Read the next decision of a gate with an audit sample, or a run of them."""
        if not isinstance(piece, Undrawn):
            self._read_one(piece)
        elif not self._read_run(piece):
            for one in piece.singles():
                self._read_one(one)

    def _read_run(self, run: Undrawn) -> bool:
        """Read decisions that were not drawn; False, and nothing is done, where a tally may begin with one."""
        tally, policy = self._tally, run.policy
        latest, _ = run.moments(self._times)
        if tally is None or self._wants(policy.terms, _selective(run), run.probability, latest):
            return False
        if policy.can_ship:
            shares = run.shipped
            held = shares.count(0.0)
            self._held += held
            self._decisions += len(shares)
            self._served += len(shares) - held
            for share in shares:  # one by one, for the same bits
                self._shipped += share
            self._tally = replace(tally, newest=max(tally.newest, latest))
        return True

    def _read_one(self, one: LoggedDecision) -> None:
        terms, moment = Terms.of(one.settings), time_of(one.number, one.decided_at, self._times)
        selective = one.settings.calibrator.risk == "selective"
        least = one.probability if one.scored else one.settings.audit_probability
        if not one.watched or one.contradictory:
            return
        tally = self._tally
        if tally is None or self._wants(terms, selective, least, moment):
            if tally is not None and tally.terms != terms and one.policy_version < tally.since_policy:
                return  # an older policy's, by a worker that had not heard of the newer one yet
            tally = self._open(one, terms, selective, least, moment)
        if not one.can_ship:
            return
        self._decisions += 1
        self._shipped += one.shipped
        self._served += one.shipped > 0
        if not one.shipped:
            self._held += 1
        elif one.sampled:
            weight = tally.bets.least / one.probability
            self._marks.append(Mark(one.number, moment.timestamp(), weight, one.most, self._held, one.loss))
            self._held = 0
        self._tally = replace(tally, newest=max(tally.newest, moment))

    def _wants(self, terms: Terms, selective: bool, least: float, moment: datetime) -> bool:
        """Whether a decision begins another tally."""
        tally = self._tally
        assert tally is not None
        over = tally.terms.begin(tally.began_at, moment) > tally.began_at
        return over or tally.terms != terms or tally.bets.selective != selective or least < tally.bets.least

    def _open(
        self, one: LoggedDecision, terms: Terms, selective: bool, least: float, moment: datetime
    ) -> Tally:
        before, began = self._tally, moment
        if before is not None and before.terms == terms:
            period = terms.begin(before.began_at, moment)
            if period > before.began_at or least >= before.bets.least:  # as the interval does: `reading`
                began = period
        self._begin()
        bets = VerdictBets(
            alpha=terms.budget,
            error=terms.delta / 2,
            least=min(least, one.settings.audit_probability),
            selective=selective,
        )
        self._tally = Tally(
            first=one.number,
            terms=terms,
            since_policy=one.policy_version,
            began_at=began,
            newest=moment,
            bets=bets,
        )
        return self._tally

    def result(self, known: Mapping[int, float], overdue: datetime) -> Tally | None:
        """Return what it comes to, with what labels say now; a decision of `overdue` or before waits no more."""
        if self._tally is None:
            return None
        bets = self._tally.bets.after(
            self._marks, held=self._held, decisions=self._decisions, served=self._served, shipped=self._shipped,
            known=known, overdue=overdue.timestamp(),
        )  # fmt: skip
        self._begin()
        return replace(self._tally, bets=bets)


def _selective(run: Undrawn) -> bool:
    return run.policy.settings.calibrator.risk == "selective"
