"""The risk alarm of each gate, replayed from recorded draws and labels: whether one is missing, and whether one cannot have been raised.

What monitoring knew when it looked is on no record, so the evidence is bounded from both sides. It rises with every loss, and an
unknown loss counts 0: with the least that labels can have said in time it is at most what monitoring saw, with the most at least.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from streamer_verify.calibrators import claim_loss
from streamer_verify.runs import Decided, Runs
from streamer_verify.values import CLOCKS_APART, parsed
from streamer_verify.waits import Served

_STRENGTHS = (0.8, 0.45, 0.22, 0.1, 0.045)
_RESTART_EVERY, _SUM_OF_WEIGHTS = 10, 2.10975
_GRACE = timedelta(days=1)
"""So long after its evidence an alarm may be missing: monitoring may have stood still."""
_MOST_WAITING = 4_500
"""Monitoring holds 5,000 draws at most for labels that have not come."""
_NEAR = 1e-9
_MOST_EVIDENCE = 1e300

Losses = Callable[[Decided], float]


class _Terms(NamedTuple):
    """What an alarm is about: another of any of these is another alarm."""

    budget: float
    tolerance: float
    about: tuple[str, str, str]
    delta: float
    every: int | None
    loss: str

    @classmethod
    def of(cls, settings: dict[str, Any]) -> _Terms:
        budget = settings["alpha"] / settings["max_attempts"]
        tolerance = min(settings["alarm_tolerance"] * budget, (1 - budget) / 2)
        about = (settings["unit"], settings["scorer"], settings["severity_kind"])
        loss = settings["loss"] if settings["unit"] == "claim" else "share"
        chance = settings["alarm_delta"], settings["alarm_false_every"]
        return cls(budget, tolerance, about, *chance, loss)

    def chance(self, number: int) -> float:
        """What the n-th alarm of a gate may spend."""
        return self.delta * 6 / (math.pi * number) ** 2

    def evidence(
        self, draws: Iterable[Decided], losses: Losses, chance: float, *, known: bool = False
    ) -> Iterator[float]:
        """The evidence after each draw; `known`: the most that it can be where some unknown ones are left out."""
        inflow = 0.0 if self.every is None else _RESTART_EVERY / (self.every * chance)
        theta, stakes = self.budget + self.tolerance, [0.0] * len(_STRENGTHS)
        for place, draw in enumerate(draws):
            if place % _RESTART_EVERY == 0:
                k = place // _RESTART_EVERY + 2
                put = (1 / (_SUM_OF_WEIGHTS * k * math.log(k) ** 2) + inflow) / len(_STRENGTHS)
                stakes = [one + put for one in stakes]
            gain = losses(draw) / theta - 1
            gain = max(gain, 0.0) if known else gain
            stakes = [
                min(one * (1 + u * gain), _MOST_EVIDENCE) for one, u in zip(stakes, _STRENGTHS, strict=True)
            ]
            yield math.fsum(stakes)


class _Alarm:
    """An alarm of a gate: its number, at least and at most, and what it reads."""

    def __init__(self, number: int, most: int, terms: _Terms, after: int, after_policy: int) -> None:
        self.number, self.most = number, most
        self.terms, self.after, self.after_policy = terms, after, after_policy
        self.draws: list[Decided] = []
        self.raised: dict[str, Any] | None = None


class Alarms:
    """Reads the logs along with the verifier, and then replays the risk alarms; `control` and `outcomes` pass their lines on.

    By gate it keeps in `begins`, by policy, number and moment of its first decision; in `alerts` and `rates` those of risk
    alarms and raised audit rates, each row with its place. `seen` has by alert the newest batch when it was acknowledged,
    `newest` when anything was last recorded.
    """

    def __init__(self) -> None:
        self.begins: dict[str, dict[int, tuple[int, str]]] = {}
        self.alerts: dict[str, dict[int, tuple[dict[str, Any], str]]] = {}
        self.seen: dict[int, int] = {}
        self.rates: dict[str, list[tuple[dict[str, Any], str]]] = {}
        self.newest = ""

    def control(self, lines: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Pass the control log on and read it."""
        for line in lines:
            yield line
            row, place = line["row"], f"control, leaf {line['index']}, {line['kind']}"
            self.newest = max(self.newest, line["recorded_at"])
            if row is None:
                continue
            if line["kind"] == "alerts" and row["kind"] == "risk":
                self.alerts.setdefault(row["gate"], {})[row["id"]] = row, f"{place} id {row['id']}"
            elif line["kind"] == "alert_acknowledgements":
                self.seen[row["alert"]] = row["last_batch"]
            elif line["kind"] == "audit_rates" and row["boosted"]:
                self.rates.setdefault(row["gate"], []).append((row, f"{place} id {row['id']}"))

    def outcomes(self, lines: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Pass the partitions' logs on, and keep where policies begin."""
        for line in lines:
            yield line
            self.newest, facts = max(self.newest, line["recorded_at"]), line["facts"]
            if line["kind"] != "decision" or facts is None or facts["batch"][2] != 1:
                continue
            begins, first = (
                self.begins.setdefault(facts["batch"][0], {}),
                (facts["number"], facts["decided_at"]),
            )
            begins[facts["policy"]] = min(begins.get(facts["policy"], first), first)

    def part(self) -> Alarms:
        """Give out what was collected of outcomes since the last time."""
        collected = Alarms()
        collected.begins, collected.newest, self.begins = self.begins, self.newest, {}
        return collected

    def add(self, part: Alarms) -> None:
        """Add what was collected elsewhere behind what is known."""
        self.newest = max(self.newest, part.newest)
        for gate, policies in part.begins.items():
            begins = self.begins.setdefault(gate, {})
            for policy, first in policies.items():
                begins[policy] = min(begins.get(policy, first), first)

    def check(self, runs: Runs) -> None:
        """Replay every gate's alarms; what does not fit is a fault of the verifier."""
        for gate in sorted(self.begins.keys() | self.alerts.keys() | self.rates.keys()):
            _Replay(self, runs, gate).check()


class _Replay:
    """The alarms of one gate."""

    def __init__(self, read: Alarms, runs: Runs, gate: str) -> None:
        self._runs, self._verifier, self._gate = runs, runs.verifier, gate
        self._draws = runs.bets(gate)
        self._moments = sorted(one.decided_at for one in self._draws)
        self._numbers = [one.number for one in self._draws]
        self._begins, self._rates, self._seen = read.begins.get(gate, {}), read.rates.get(gate, ()), read.seen
        self._unmatched = dict(read.alerts.get(gate, {}))
        self._until = _later(read.newest, -_GRACE)
        revisions = [row for (name, _), row in self._verifier.rows("gate_revisions").items() if name == gate]
        named = {one["labellers"] for one in revisions}
        # Whose labels monitoring read, and whether their signatures were good then, only settings that never change say.
        self._certain = len(named) == 1 and not any(one["signed_labels"] for one in revisions)
        self._labellers = parsed(named.pop()) if self._certain else None
        self._deadline = 0.9 * min((one["monitor_deadline_seconds"] for one in revisions), default=0.0)

    def check(self) -> None:
        alarms = list(self._alarms())
        for alarm, ended in alarms:
            self._verifier.counts["alarms replayed"] += 1
            if alarm.raised is None and self._certain:
                until = self._until if ended is None else min(self._until, _later(ended, -_GRACE))
                self._is_missing(alarm, until)
        for _, place in self._unmatched.values():
            said = f"no risk alarm of {self._gate} bets on the batch that is said to have raised it"
            self._fault(place, said)
        highest = [self._highest(alarm) for alarm, _ in alarms]
        for row, place in self._rates:
            until = _later(row["since"], 2 * _GRACE)  # decisions are dated by clocks of workers
            most = max((path[bisect_right(moments, until)] for moments, path in highest), default=0.0)
            if row["evidence"] > most * (1 + _NEAR):
                said = f"recorded draws and labels give its gate's risk alarm an evidence of {most:.3g} at most by then, not"
                self._fault(place, f"{said} {row['evidence']:.3g}")

    def _alarms(self) -> Iterator[tuple[_Alarm, str | None]]:
        """Each alarm with all that it read, and when the decision was made that began the next one instead."""
        alarm: _Alarm | None = None
        by_batch = {_whole(row, "batch"): key for key, (row, _) in self._unmatched.items()}
        first = [(number, policy, at, None) for policy, (number, at) in self._begins.items()]
        order = [*first, *((one.number, one.policy, one.decided_at, one) for one in self._draws)]
        for number, policy, at, draw in sorted(order, key=lambda one: (one[0], one[3] is not None)):
            terms = self._terms(policy)
            if terms is None:
                continue
            if alarm is not None and alarm.raised is not None:
                following = self._after(alarm, terms, number, policy)
                if following is not None:
                    yield alarm, None
                    alarm = following
            if alarm is not None and (number <= alarm.after or policy <= alarm.after_policy):
                continue
            if alarm is None or alarm.terms != terms:
                if alarm is not None:
                    yield alarm, at
                n, most = (0, 0) if alarm is None else (alarm.number, alarm.most)
                alarm = _Alarm(n + 1, most + 1, terms, number - 1, policy - 1)
            if draw is None or alarm.raised is not None:
                continue
            alarm.draws.append(draw)
            key = by_batch.get(number)
            if key in self._unmatched:
                alarm.raised, place = self._unmatched.pop(key)
                self._could_be_raised(alarm, alarm.raised, place)
        if alarm is not None:
            yield alarm, None

    def _terms(self, policy: int) -> _Terms | None:
        """What an alarm on decisions of a policy is about; None where it bets on none of them."""
        row = self._verifier.row("policies", self._gate, policy)
        settings = self._verifier.settings(self._gate, policy)
        if row is None or settings is None or Served.of(row).ships_nothing:
            return None
        return _Terms.of(settings) if settings["audit_probability"] else None

    def _after(self, alarm: _Alarm, terms: _Terms, number: int, policy: int) -> _Alarm | None:
        """The alarm that follows one that was raised, where a decision is the first that it may bet on."""
        row = alarm.raised or {}
        closed, seen = _whole(row, "closed_by_policy"), self._seen.get(row["id"])
        after, after_policy = alarm.after, alarm.after_policy
        if closed is not None and policy > closed:
            after_policy = closed
        elif seen is not None and number > seen:
            after = seen
        else:
            return None
        # Opened by the newest settings of that moment, it may have begun again at its first decision, with a number more.
        return _Alarm(alarm.number + 1, alarm.most + 2, terms, after, after_policy)

    def _could_be_raised(self, alarm: _Alarm, row: dict[str, Any], place: str) -> None:
        number, chance = _whole(row, "alarm"), row["details"].get("delta")
        if number is None or not alarm.number <= number <= alarm.most:
            self._fault(place, f"it is the alarm {number} of {self._gate}, and by the record {alarm.number}")
            return
        due = alarm.terms.chance(number)
        if not isinstance(chance, float) or not math.isclose(chance, due, rel_tol=_NEAR):
            self._fault(place, f"the alarm {number} of {self._gate} may spend {due:.3g}, not {chance}")
            return
        until = _later(row["raised_at"], CLOCKS_APART)
        *_, evidence = alarm.terms.evidence(alarm.draws, lambda draw: self._loss(draw, alarm, until)[1], due)
        if evidence < (1 - _NEAR) / due:
            self._fault(
                place,
                f"recorded draws and labels give it an evidence of {evidence:.4g} at most, and {1 / due:.4g} raise it",
            )

    def _is_missing(self, alarm: _Alarm, until: str) -> None:
        level = 1 / alarm.terms.chance(alarm.most)
        path = alarm.terms.evidence(
            alarm.draws, lambda draw: self._loss(draw, alarm, until)[0], alarm.terms.chance(alarm.number)
        )
        for draw, evidence in zip(alarm.draws, path, strict=True):
            if draw.decided_at > until:
                return
            if evidence >= level * (1 + _NEAR):
                self._fault(
                    draw.place,
                    f"with it the evidence of the risk alarm of {self._gate} comes to {evidence:.4g} by labels that were there at"
                    f" {until}, {level:.4g} raise it, and a day later no such alarm is on record: it was suppressed, or nobody"
                    " monitored the gate",
                )
                return

    def _highest(self, alarm: _Alarm) -> tuple[list[str], list[float]]:
        """Moments by which so many draws were made, and the most that the known evidence was before each, and at the end."""
        chance = alarm.terms.chance(alarm.number)
        path = alarm.terms.evidence(
            alarm.draws, lambda draw: self._loss(draw, alarm, "~")[1], chance, known=True
        )
        most = [0.0]
        for evidence in path:
            most.append(max(most[-1], evidence))
        return sorted(one.decided_at for one in alarm.draws), most

    def _loss(self, draw: Decided, alarm: _Alarm, until: str) -> tuple[float, float]:
        """The least and the most that monitoring can have taken for the loss of a draw by a moment."""
        kind, told = alarm.terms.about[2], list[tuple[float, float, str]]()
        for response in draw.needed:
            found = [
                one
                for one in self._runs.labels((*draw.batch, response))
                if one.kind == kind
                and one.received <= until
                and (self._labellers is None or one.labeller in self._labellers)
            ]
            if found:
                given = [one.severity for one in found]
                told.append((min(given), max(given), min(one.received for one in found)))
        drawn = sum(one for _, one in draw.responses.values())
        if len(told) < len(draw.needed):  # of claims a wrong one decides, whatever the others are
            decisive = [one for one in told if one[1] == 1 and alarm.terms.loss == "any"]
            sure = [one for one in decisive if one[0] == 1]
            told = sorted(sure, key=lambda one: one[2])[:1] or [(0.0, 1.0, "") for _ in decisive[:1]]
        if not told:
            return 0.0, 0.0
        least, most, received = zip(*told, strict=True)
        complete = max(received)
        waiting = bisect_right(self._moments, complete) - bisect_left(self._numbers, draw.number)
        in_time = complete <= _later(draw.decided_at, timedelta(seconds=self._deadline))
        loss = alarm.terms.loss
        seen = in_time and waiting <= _MOST_WAITING
        return claim_loss(loss, least, drawn) if seen else 0.0, claim_loss(loss, most, drawn)

    def _fault(self, place: str, detail: str) -> None:
        self._verifier.fault("alarm", place, detail)


def _whole(row: dict[str, Any], name: str) -> int | None:
    """A whole number among the details of an alert; None where they have none of that name."""
    value = row["details"].get(name)
    return value if type(value) is int else None


def _later(moment: str, by: timedelta) -> str:
    """A moment so much later."""
    try:
        return (datetime.fromisoformat(moment) + by).isoformat(timespec="microseconds")
    except OverflowError:
        return "~"
