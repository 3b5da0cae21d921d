"""What needs no label, read as soon as it is on record: are draws made as logged, and do scores and embeddings drift?

Drift is looked for against what the policy in force was calibrated on: the same numbers of the batches that its run read.
A policy of another run starts again; but an alarm that was raised stands until somebody acknowledges it, or a run is in force
whose newest batches were all decided after it. Each policy's `drift_delta` is split: half for scores, half for the numbers of the
embedding cloud.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from streamer.events.alerts import AlarmKind
from streamer.gates.uniforms import keyed_bits
from streamer.risk.rounds.alarm_terms import ACKNOWLEDGED, opened
from streamer.risk.rounds.columns import LoggedDecisions
from streamer.risk.rounds.state import BETTING, GateWatch, WatchedAlarm
from streamer.risk.states import AuditedDecisions, DrawAlarm, DriftAlarm
from streamer.risk.states.drift import FEWEST_REFERENCES
from streamer.scoring.cloud import STATISTICS

Reference = Callable[[int], LoggedDecisions]


Places = NDArray[np.int64]
Floats = NDArray[np.float64]

SCORE = "score"
NEW_POLICY = "another policy came into force"

_BELOW_ONE = math.nextafter(1.0, 0.0)
_PHILOX = 4
"""Numbers that one step of NumPy's Philox gives: any place of its stream is reached at once."""


class DriftReader:
    """One page being read without labels. The result does not depend on how decisions are cut into pages.

    `watch`: where the gate stands. `now`: the present moment of our clock. `salt`: the gate's
    secret; it makes the random numbers that break ties between equal scores. `reference`: the
    decisions that a calibration run read, in order.
    """

    def __init__(self, watch: GateWatch, *, now: datetime, salt: bytes, reference: Reference) -> None:
        self._watch = watch
        self._now = now
        self._salt = salt
        self._reference = reference
        self._alarms: dict[tuple[AlarmKind, str], WatchedAlarm] = {
            (one.kind, one.statistic): one for one in watch.alarms if one.kind not in BETTING
        }
        self._run, self._policy = watch.drift_run, watch.drift_policy
        self._places: list[Places] = []
        self._past: list[WatchedAlarm] = []

    def read(self, decisions: LoggedDecisions) -> None:
        """Read these decisions, the next in order."""
        if not decisions:
            return
        self._observe_draws(decisions)
        for piece in decisions.of_one_policy():
            run = decisions.policy(piece.start).run
            places = np.flatnonzero(decisions.scored[piece.start : piece.stop]) + piece.start
            if not places.size or run is None or decisions.policy_versions[piece.start] < self._policy:
                continue
            if run != self._run or any(one.ended == ACKNOWLEDGED for one in self._alarms.values()):
                self._observe_drift(decisions)
                decision = decisions[int(places[0])]
                assert decision.run is not None
                self._run, self._policy = decision.run, decision.policy_version
                reference = self._reference(decision.run)
                since = min(reference.numbers, default=0)
                for kind, statistic in _WATCHED:
                    before = self._alarms.get((kind, statistic))
                    if before is not None and before.ended is None:
                        stands = before.raised_by is not None and since <= before.raised_by
                        if stands or before.run == decision.run:
                            continue
                    if before is not None:
                        del self._alarms[kind, statistic]
                        self._past.append(replace(before, ended=before.ended or NEW_POLICY))
                    _, numbers = _values(reference, np.arange(len(reference)), statistic)
                    if len(numbers) < FEWEST_REFERENCES:
                        if before is not None:  # kept, so that its number is not given again
                            self._alarms[kind, statistic] = self._past.pop()
                        continue
                    share = 2 if kind == "drift_scores" else 2 * len(STATISTICS)
                    self._alarms[kind, statistic] = WatchedAlarm(
                        kind=kind,
                        statistic=statistic,
                        number=1 if before is None else before.number + 1,
                        after=decision.number - 1,
                        run=decision.run,
                        state=DriftAlarm.open(numbers, delta=decision.settings.drift_delta / share),
                    )
            self._places.append(places)
        self._observe_drift(decisions)
        self._watch = replace(self._watch, seen=decisions.numbers[-1])

    def result(self) -> tuple[GateWatch, list[WatchedAlarm]]:
        """Return where the gate stands now, and alarms that ended on the way."""
        labels = tuple(one for one in self._watch.alarms if one.kind in BETTING)
        watch = replace(
            self._watch,
            drift_run=self._run,
            drift_policy=self._policy,
            alarms=(*labels, *self._alarms.values()),
        )
        return watch, self._past

    def _observe_draws(self, decisions: LoggedDecisions) -> None:
        places = np.flatnonzero(decisions.scored & (decisions.probability > 0))
        if not places.size:
            return
        alarm = self._alarms.get(("draws", ""))
        if alarm is None:
            alarm = opened("draws", decisions.policy(int(places[0])).settings, after=0)
        self._alarms["draws", ""] = alarm
        places = places[np.array(decisions.numbers)[places] > alarm.after]
        if alarm.raised_by is not None or not places.size:
            return
        assert isinstance(alarm.state, DrawAlarm)
        sampled, probability = decisions.sampled[places], decisions.probability[places]
        rows = AuditedDecisions.of(
            # "Certain" and "not taken" contradict one another: that is what this alarm is to see.
            probability=np.where(sampled, probability, np.minimum(probability, _BELOW_ONE)),
            sampled=sampled,
            labelled=np.zeros(places.size, dtype=np.bool_),
            loss=0.0,
        )
        self._alarms["draws", ""] = self._after(alarm, alarm.state.observe(rows), decisions, places)

    def _observe_drift(self, decisions: LoggedDecisions) -> None:
        if not self._places:
            return
        page = np.concatenate(self._places)
        for place, alarm in list(self._alarms.items()):
            kind, statistic = place
            if kind == "draws" or alarm.run != self._run or alarm.raised_by is not None or alarm.ended:
                continue
            places, values = _values(decisions, page, statistic)
            if not places.size:
                continue
            assert isinstance(alarm.state, DriftAlarm)
            state = alarm.state.observe(values, self._uniforms(alarm, places.size))
            self._alarms[place] = self._after(alarm, state, decisions, places)
        self._places = []

    def _after(
        self,
        alarm: WatchedAlarm,
        state: DrawAlarm | DriftAlarm,
        decisions: LoggedDecisions,
        places: Places,
    ) -> WatchedAlarm:
        """The alarm in the state that it has after the decisions at these places."""
        if state.raised_at is None:
            return replace(alarm, state=state)
        number = decisions.numbers[places[state.raised_at - alarm.state.bets.seen - 1]]
        return replace(alarm, state=state, raised_by=number, raised_at=self._now)

    def _uniforms(self, alarm: WatchedAlarm, count: int) -> Floats:
        """Return the next random numbers of an alarm: its own stream, keyed by the gate's secret, at the place it has read to."""
        assert isinstance(alarm.state, DriftAlarm)
        place, key = alarm.state.bets.seen, (alarm.kind, alarm.statistic, str(alarm.number))
        stream = np.random.Philox(key=keyed_bits(self._salt, "drift", self._watch.gate, *key))
        stream.advance(place // _PHILOX)
        skipped = place % _PHILOX
        return np.random.Generator(stream).random(skipped + count)[skipped:]


_WATCHED: tuple[tuple[AlarmKind, str], ...] = (
    ("drift_scores", SCORE),
    *(("drift_cloud", statistic) for statistic in STATISTICS),
)


def _values(decisions: LoggedDecisions, places: Places, statistic: str) -> tuple[Places, Floats]:
    """Return the places that have this number, of those that are given, and their numbers."""
    if statistic == SCORE:
        found = places[decisions.scored[places]]
        return found, decisions.scores[found]
    there, numbers = decisions.clouds
    found = places[there[places]]
    return found, numbers[found, STATISTICS.index(statistic)]
