"""Giving audit draws to the alarms on labels: as soon as they are on record, in order, whether their labels have come or not.

Only decisions that the audit sample took while the gate could ship are bets. One that shipped nothing of what was drawn has
a loss of 0 at once; one whose labels are not there waits in the alarm's state, and its loss is frozen when it is first
complete and only rises from then on; one that is older than the label deadline counts 0 until a label comes. For the alarm on
missing labels it counts as missing once it is older than the label lag was when it was read.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from streamer.events.alerts import AlarmKind
from streamer.risk.rounds.alarm_terms import (
    MISSING_SHARE,
    RISK_RAISED,
    TERMS_CHANGED,
    early_about,
    goes_on,
    opened,
    selective_limit,
)
from streamer.risk.rounds.columns import Undrawn, pieces
from streamer.risk.rounds.horizon import time_of
from streamer.risk.rounds.logged import LoggedDecision
from streamer.risk.rounds.state import (
    BETTING,
    LABEL_ALARMS,
    GateWatch,
    LabelAlarmKind,
    WatchedAlarm,
)
from streamer.risk.rounds.store import CalibratedSample
from streamer.risk.rounds.tally import TallyReader
from streamer.risk.states import Draw, EarlyWarning, LabelAlarm, RiskAlarm


class LabelAlarmReader:
    """One page being read. Where all labels are there, the result does not depend on how decisions are cut into pages.

    `watch`: where the gate stands. `now`: the present moment of our clock. `deadline`: the age at
    which a decision without its labels is overdue. `lag`: the age at which one counts as wrong for
    the alarm on missing labels. `calibrated`: what a calibration run found; None where there is no
    such run.
    """

    def __init__(
        self,
        watch: GateWatch,
        *,
        now: datetime,
        deadline: timedelta,
        lag: timedelta,
        calibrated: Callable[[int], CalibratedSample | None],
    ) -> None:
        self._watch = watch
        self._now = now
        self._deadline = deadline
        self._lag = min(lag, deadline)
        self._calibrated = calibrated
        self._alarms: dict[LabelAlarmKind, WatchedAlarm] = {
            kind: alarm for kind in LABEL_ALARMS if (alarm := watch.alarm(kind)) is not None
        }
        self._draws: dict[LabelAlarmKind, list[Draw]] = {kind: [] for kind in LABEL_ALARMS}
        self._tally = TallyReader(watch.tally, watch.marks)
        self._known: dict[int, float] = {}
        self._early = watch.alarm("early")
        self._seen: list[Draw] = []
        self._marks: dict[int, float] = {}
        self._past: list[WatchedAlarm] = []
        self._limits: dict[int, float | None] = {}
        self._fits: set[tuple[AlarmKind, int, int]] = set()

    @staticmethod
    def waiting(watch: GateWatch) -> list[int]:
        """Numbers of the decisions whose labels may still change an alarm or the verdict."""
        marks = () if watch.tally is None else watch.tally.bets.tail
        numbers = {draw.number for alarm in watch.alarms for draw in _tail(alarm)}
        return sorted(numbers.union(one.number for one in marks))

    def learn(self, decisions: Sequence[LoggedDecision]) -> None:
        """Take what labels say now of such decisions."""
        for decision in decisions:
            if decision.loss is not None:
                self._known[decision.number] = decision.loss
            if (mark := decision.early_mark) is not None:
                self._marks[decision.number] = mark

    def read(self, decisions: Sequence[LoggedDecision]) -> None:
        """Read these decisions, the next in order, with what labels say of those that were drawn."""
        for piece in pieces(decisions):
            self._tally.read(piece)
            if isinstance(piece, Undrawn):
                self._pass(piece)
            elif piece.watched and piece.can_ship:
                self._mark(piece)
                for kind in LABEL_ALARMS:
                    self._bet(kind, piece)
        for kind in LABEL_ALARMS:
            self._flush(kind)
        self._flush_early()
        if decisions:
            self._watch = replace(self._watch, bet=decisions[-1].number)

    def result(self) -> tuple[GateWatch, list[WatchedAlarm]]:
        """Return where the gate stands now, and alarms that ended on the way."""
        others = tuple(one for one in self._watch.alarms if one.kind not in BETTING)
        if self._early is not None:
            others = (self._early, *others)
        tally = self._tally.result(self._known, self._now - self._deadline)
        return replace(self._watch, alarms=(*self._alarms.values(), *others), tally=tally), self._past

    @property
    def overdue_at(self) -> datetime | None:
        """When the oldest draw that an alarm waits for is overdue; None where none waits."""
        due = [
            datetime.fromtimestamp(draw.moment + draw.lag, UTC) + self._waits(kind)
            for kind, alarm in self._alarms.items()
            for draw in _tail(alarm)
            if draw.loss is None
        ]
        return min(due, default=None)

    def _waits(self, kind: LabelAlarmKind) -> timedelta:
        """How long after its lag a draw is overdue: of a missing label's alarm at once."""
        return timedelta(0) if kind == "missing" else self._deadline

    def _pass(self, run: Undrawn) -> None:
        """Read decisions that were not drawn: all that they may do is open an alarm, and the first one does."""
        if not run.policy.can_ship:
            return
        for kind in LABEL_ALARMS:
            alarm = self._alarms.get(kind)
            if alarm is not None and (kind, alarm.number, run.policy_version) in self._fits:
                continue
            first = run.after(0 if alarm is None else alarm.after)
            if first is not None:
                self._bet(kind, first)

    def _mark(self, decision: LoggedDecision) -> None:
        """Give an answer that shipped, drawn or not, to the early warning."""
        early, settings = self._early, decision.settings
        if settings.early not in ("judge", "signals"):
            return
        if early is not None and (
            decision.number <= early.after or decision.policy_version <= early.after_policy
        ):
            return
        about = early_about(settings)
        if early is None or early.about != about:
            self._flush_early()
            if early is not None:
                self._past.append(replace(early, ended=early.ended or TERMS_CHANGED))
            self._early = opened(
                "early",
                settings,
                early,
                after=decision.number - 1,
                after_policy=decision.policy_version - 1,
                run=decision.run,
            )
        if decision.shipped:
            moment = time_of(decision.number, decision.decided_at, self._watch.marks).timestamp()
            self._seen.append(Draw(decision.number, 0.5, 1.0, decision.early_mark, moment))

    def _flush_early(self) -> None:
        early, marks, self._seen = self._early, self._seen, []
        if early is None or early.ended is not None:
            return
        assert isinstance(early.state, EarlyWarning)
        overdue = (self._now - self._deadline).timestamp()
        after = early.state.observe(marks, known=self._marks, overdue=overdue)
        raised = after.raised_at is not None and early.raised_by is None
        self._early = replace(early, state=after)
        if raised:
            self._early = replace(self._early, raised_by=after.bets.raised_by, raised_at=self._now)

    def _bet(self, kind: LabelAlarmKind, decision: LoggedDecision) -> None:
        alarm = self._alarms.get(kind)
        if alarm is not None and (
            decision.number <= alarm.after or decision.policy_version <= alarm.after_policy
        ):
            return
        if kind == "missing" and self._risk_is_raised:
            return  # it says already what this one would
        limit = self._limit(decision) if kind == "selective" else None
        if kind == "selective" and limit is None:
            return
        if alarm is None or alarm.ended is not None or not self._goes_on(alarm, decision):
            alarm = self._open(kind, decision)
        if not decision.sampled or not decision.scored:
            return
        moment = time_of(decision.number, decision.decided_at, self._watch.marks).timestamp()
        state = alarm.state
        if isinstance(state, RiskAlarm):
            draw = state.draw(decision.number, decision.loss, moment=moment)
            if kind == "missing":
                draw = state.draw_due(
                    decision.number,
                    decision.loss,
                    moment=moment,
                    lag=self._lag.total_seconds(),
                    share=MISSING_SHARE,
                    most=decision.most,
                )
            self._draws[kind].append(draw)
        elif decision.needed and limit is not None:
            share = decision.needed / decision.drawn
            self._draws[kind].append(Draw(decision.number, limit, share, decision.loss, moment))

    def _goes_on(self, alarm: WatchedAlarm, decision: LoggedDecision) -> bool:
        fit = (alarm.kind, alarm.number, decision.policy_version)
        if fit not in self._fits and goes_on(alarm, decision.settings):
            self._fits.add(fit)
        return fit in self._fits

    def _limit(self, decision: LoggedDecision) -> float | None:
        version = decision.policy_version
        if version not in self._limits:
            found = None if decision.run is None else self._calibrated(decision.run)
            self._limits[version] = None if found is None else selective_limit(decision.settings, found)
        return self._limits[version]

    def _open(self, kind: LabelAlarmKind, decision: LoggedDecision) -> WatchedAlarm:
        self._flush(kind)
        before = self._alarms.get(kind)
        if before is not None:
            self._past.append(replace(before, ended=before.ended or TERMS_CHANGED))
        alarm = self._alarms[kind] = opened(
            kind,
            decision.settings,
            before,
            after=decision.number - 1,
            after_policy=decision.policy_version - 1,
        )
        return alarm

    @property
    def _risk_is_raised(self) -> bool:
        risk = self._alarms.get("risk")
        return risk is not None and risk.raised_by is not None

    def _flush(self, kind: LabelAlarmKind) -> None:
        alarm, draws = self._alarms.get(kind), self._draws[kind]
        self._draws[kind] = []
        if alarm is None or alarm.ended is not None:
            return
        state = alarm.state
        assert isinstance(state, LabelAlarm)
        overdue = (self._now - self._waits(kind)).timestamp()
        after = state.observe(draws, known=self._known, overdue=overdue)
        if after == state:
            return
        if kind == "missing" and after.raised_at is not None and self._risk_is_raised:
            self._alarms[kind] = replace(alarm, ended=RISK_RAISED)
            return
        alarm = self._alarms[kind] = replace(alarm, state=after)
        if after.raised_at is not None:
            self._alarms[kind] = replace(alarm, raised_by=after.bets.raised_by, raised_at=self._now)


def _tail(alarm: WatchedAlarm) -> Sequence[Draw]:
    state = alarm.state
    if isinstance(state, EarlyWarning):
        return state.waiting
    return state.bets.tail if isinstance(state, LabelAlarm) else ()
