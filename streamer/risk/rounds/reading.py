"""Reading decisions with their labels into the interval: strictly in order, each once, when it is resolved.

A decision is *resolved* when nothing more can be learned of it in time: it was not drawn, or nothing of what was drawn
shipped, or every severity that is needed is there, or it is older than the label deadline (then it is overdue). In a
sequence with a judge, what the judge says must be there too, up to the same deadline. The first decision that is not
resolved holds up all behind it.

Why waiting does no harm: the order is fixed, and the bounds hold at all times at once. When something is read may
depend on anything; only *whether* and *in which place* may not depend on draws and labels, and neither does.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from streamer.risk.rounds.columns import Undrawn, pieces
from streamer.risk.rounds.horizon import time_of
from streamer.risk.rounds.logged import LoggedDecision, Terms
from streamer.risk.rounds.state import GateWatch, WatchedSequence
from streamer.risk.states import AuditedDecision, AuditedDecisions, ExposurePlan, ExposureSequence, NotSampled

JUDGE_CAP = 0.5
"""Predictions are cut here: half the scale keeps most of what a good judge gives, and halves the lower bound's price."""

NO_SAMPLE = "no audit sample is drawn any more"
TERMS_CHANGED = "the gate was changed in what the interval is about"
PERIOD_OVER = "its budget period was over"
LESS_SAMPLED = "the audit probability was lowered"
JUDGE_MISSING = "the judge had not labelled a decision at its deadline"


class IntervalReader:
    """One page being read. The result does not depend on how decisions are cut into pages.

    `watch`: where the gate stands. `now`: the present moment of our clock. `deadline`: the age at
    which a decision without its labels is overdue.
    """

    def __init__(self, watch: GateWatch, *, now: datetime, deadline: timedelta) -> None:
        self._watch = watch
        self._now = now
        self._deadline = deadline
        self._sequence = watch.sequence
        self._sequence_rows: list[AuditedDecision | NotSampled] = []
        self._reached = (watch.read, now)
        self._unwatched = watch.unwatched
        self._read = watch.read
        self._ended: list[WatchedSequence] = []
        self.blocked_at: datetime | None = None

    def read(self, decisions: Sequence[LoggedDecision]) -> None:
        """Read these decisions, the next in order, up to the first that is not resolved."""
        for piece in pieces(decisions):
            if isinstance(piece, Undrawn):
                if not self._take_run(piece):
                    for decision in piece.singles():
                        self._read_one(decision)
            else:
                self._read_one(piece)
                if self.blocked_at is not None:
                    break
        self._flush_sequence()

    def result(self) -> tuple[GateWatch, list[WatchedSequence]]:
        """Return where the gate stands now, and sequences that ended on the way."""
        watch = replace(self._watch, read=self._read, unwatched=self._unwatched, sequence=self._sequence)
        return watch, self._ended

    def _read_one(self, decision: LoggedDecision) -> None:
        moment = time_of(decision.number, decision.decided_at, self._watch.marks)
        due = self._now - moment >= self._deadline
        if not decision.watched:
            self._end_sequence(NO_SAMPLE)
            self._unwatched += 1
        elif decision.contradictory:
            self._unwatched += 1
        elif (decision.overdue and not due) or self._take(decision, moment, due=due):
            self.blocked_at = moment
            return
        self._read = decision.number

    # -- the interval ---------------------------------------------------------------------------------------

    def _take_run(self, run: Undrawn) -> bool:
        """Give decisions that were not drawn to the present sequence; False, and nothing is done, where one may end it."""
        current, terms = self._sequence, run.policy.terms
        if current is None or current.ended is not None or current.terms != terms:
            return False
        latest, moment = run.moments(self._watch.marks)
        if terms.begin(current.began_at, latest) > current.began_at:
            return False
        if run.probability < current.state.plan.least_probability:
            return False
        self._sequence_rows.append(NotSampled(run.probability, run.shipped))
        self._reached = run.last, moment
        self._read = run.last
        return True

    def _take(self, decision: LoggedDecision, moment: datetime, *, due: bool) -> bool:
        """Give a decision to its sequence. Returns True when it has to wait for the judge, and nothing was done."""
        terms = Terms.of(decision.settings)
        current = self._sequence
        if current is not None and current.terms != terms and decision.policy_version < current.since_policy:
            self._unwatched += 1  # an older policy's, by a worker that had not heard of the newer one yet
            return False
        why = (
            None if current is None or current.ended is not None else _over(current, terms, decision, moment)
        )
        fresh = current is None or current.ended is not None or why is not None
        judged = terms.judge_kind is not None
        if judged and not fresh and current is not None:
            judged = current.state.plan.judge_cap is not None
        elif judged and current is not None and current.terms == terms and current.ended == JUDGE_MISSING:
            judged = terms.begin(current.began_at, moment) > current.began_at
        incomplete = judged and decision.shipped > 0 and decision.predicted is None
        if incomplete and not due:
            return True
        if fresh:
            if why is not None:
                self._end_sequence(why)
            self._open_sequence(decision, moment, terms, judged=judged, after=why)
        if incomplete:
            # Whether the judge was in time may depend on the draw: this one is read by no sequence, and the next
            # begins without a judge.
            self._end_sequence(JUDGE_MISSING)
            self._unwatched += 1
            return False
        self._sequence_rows.append(decision.audited())
        self._reached = decision.number, moment
        return False

    def _open_sequence(
        self, decision: LoggedDecision, moment: datetime, terms: Terms, *, judged: bool, after: str | None
    ) -> None:
        before = self._sequence
        began = moment
        if before is not None and before.terms == terms and after != LESS_SAMPLED:
            began = terms.begin(before.began_at, moment)
        plan = ExposurePlan(
            delta=terms.delta,
            least_probability=min(decision.settings.audit_probability, _least_probability(decision)),
            prior_mean=terms.budget,
            judge_cap=JUDGE_CAP if judged else None,
        )
        self._sequence = WatchedSequence(
            number=1 if before is None else before.number + 1,
            terms=terms,
            since_policy=decision.policy_version,
            first=decision.number,
            last=decision.number,
            began_at=began,
            read_at=moment,
            state=ExposureSequence(plan=plan),
        )

    def _end_sequence(self, why: str) -> None:
        self._flush_sequence()
        if self._sequence is not None and self._sequence.ended is None:
            self._sequence = replace(self._sequence, ended=why)
            self._ended.append(self._sequence)

    def _flush_sequence(self) -> None:
        if self._sequence is not None and self._sequence_rows:
            state = self._sequence.state.observe(AuditedDecisions.of_pieces(self._sequence_rows))
            last, read_at = self._reached
            self._sequence = replace(self._sequence, state=state, last=last, read_at=read_at)
            self._sequence_rows = []


def _over(current: WatchedSequence, terms: Terms, decision: LoggedDecision, moment: datetime) -> str | None:
    if current.terms != terms:
        return TERMS_CHANGED
    if terms.begin(current.began_at, moment) > current.began_at:
        return PERIOD_OVER
    # What was held without scores is read at the gate's own probability, and may be the first under a lower one.
    if _least_probability(decision) < current.state.plan.least_probability:
        return LESS_SAMPLED
    return None


def _least_probability(decision: LoggedDecision) -> float:
    """Return the probability at which a sequence reads a decision."""
    return decision.probability if decision.scored else decision.settings.audit_probability
