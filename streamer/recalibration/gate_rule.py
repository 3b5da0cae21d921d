"""The gate's rule: what becomes of a run that the service made by itself. Pure.

Holding more is the safe side, and acts at once. Holding less is a decision that labels could be forged for: it acts only
within the gate's limits, on enough groups of which enough are new, and never further than the highest label of each
response allows. Everything else waits for a person.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from streamer.gates.policy import MONITOR, WARNING, Bursts, Policy
from streamer.gates.rule import Cut, Rule
from streamer.gates.setting_changes import calibrated_for_another
from streamer.gates.settings import GateSettings
from streamer.recalibration.comparison import Direction, Reading

Outcome = Literal["applied", "proposed", "unchanged"]

MOST_EVIDENCE = 0.1
"""Evidence of the risk alarm from which on nothing is loosened by itself: it begins near one half, falls as good
labels come, and raises the alarm at 1/delta."""

Closer = Literal["person", "alarm", "warning", "calibration", "nobody"]
"""Who closed a gate that ships nothing: a person by `threshold close` or a rollback, the alarm, an early warning, a calibration
whose labels allow nothing, or nobody: it was never calibrated for its settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A run beside the policy in force.

    `direction`: of the run, seen from the policy. `lambda_step`: how far lambda moves, >= 0, may be
    infinite. `ship_rates`: share of the run's groups that would ship, by the policy and by the run.
    `labelled_groups`: groups of the run with a label. `new_groups`: those of them that the run
    behind the policy has not read with a label; all where no run is behind it.
    """

    direction: Direction
    lambda_step: float
    ship_rates: tuple[float, float]
    labelled_groups: int
    new_groups: int

    @property
    def ship_rate_step(self) -> float:
        """How far the share that ships would move, in [0, 1]."""
        return abs(self.ship_rates[1] - self.ship_rates[0])

    def beyond(self, settings: GateSettings) -> list[str]:
        """Say which of the gate's limits on a step this passes."""
        said = []
        if self.lambda_step > settings.max_lambda_step:
            far = f"by {self.lambda_step:.4g}" if math.isfinite(self.lambda_step) else "without bound"
            said.append(f"the threshold would move {far}, at most {settings.max_lambda_step:g} is allowed")
        if self.ship_rate_step > settings.max_ship_rate_step:
            was, now = self.ship_rates
            said.append(
                f"the share that ships would go from {was:.4g} to {now:.4g}, a step of at most "
                f"{settings.max_ship_rate_step:g} is allowed"
            )
        return said


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """How it came that a gate ships nothing.

    `by`: who closed it. `served`: what the gate cut by when it last shipped, for settings like
    those of now; None if it never did. `alarms`: how often an alarm has closed the gate since it
    was made.
    """

    by: Closer
    served: Reading | None
    alarms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What becomes of a run, and why, in words for people.

    `worst_label`: the run on worst labels is the one to record. `large`: it acts beyond the limits
    of a step, on the safe side; an operator should know. `held_until`: nothing stands against it
    but that it has to wait until then.
    """

    outcome: Outcome
    why: str
    worst_label: bool = False
    large: bool = False
    held_until: datetime | None = None


def hold(applied: Verdict, *, now: datetime, since: "Held | None", lag: timedelta) -> Verdict:
    """Have a looser threshold wait for one label lag since (None: now) a looser one was first
    found, and then be tested again.

    In that time what it would ship gets its labels; nothing earlier can show that it is bad.
    """
    until = now + lag if since is None else since.until
    if now < until:
        why = (
            f"{applied.why}; it waits for one label lag, until {until:%Y-%m-%d %H:%M:%SZ}, and is tested again before it comes "
            "into force"
        )
        return replace(applied, outcome="proposed", why=why, held_until=until)
    if since is None:
        return applied
    waited = (
        f"{applied.why}; it has waited for one label lag since run {since.run}, and the newest labels, the risk alarm and the "
        "drift alarm say nothing against it"
    )
    return replace(applied, why=waited)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A threshold that a run found and that is not in force: what the policy would have, for the
    settings that the run saw.

    `why`: why it was not put in force at once; empty when somebody asked for a proposal. Nothing of
    its `bursts` ships. `held_until`: when the service tests it again, to put it in force by itself;
    None: it waits for a person.
    """

    gate: str
    run: int
    settings: GateSettings
    cut: Cut
    rule: Rule
    guarantee: str
    groups: int
    items: int
    missing: int
    by: str
    at: datetime
    why: str = ""
    held_until: datetime | None = None
    bursts: Bursts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A wait that runs: `run`, the newest of the gate, made since its policy came into force, is to
    be tested again at `until`.
    """

    run: int
    until: datetime


def least_new_groups(settings: GateSettings) -> int:
    """Groups, of those that a looser threshold is calibrated on, that must be new since the policy in force."""
    return math.ceil(settings.least_groups / 2)


def closing(policies: Sequence[Policy]) -> Closing | None:
    """Find out who closed a gate; None when it ships.

    A closing is a version of its own that changes no setting and that no run found, or whose run was in force before:
    then somebody went back to it. Once a person has closed the gate it counts as closed by a person, whatever was done to
    it later, until it ships again.

    `policies`: every version, the oldest first; at least one.
    """
    newest = policies[-1]
    if not newest.ships_nothing:
        return None
    closers = set()
    served = None
    for i in range(len(policies) - 1, -1, -1):
        policy = policies[i]
        if not policy.ships_nothing:
            if not calibrated_for_another(policy.settings, newest.settings):
                served = Reading.of_policy(policy)
            break
        by_itself = i > 0 and policy.gate_revision == policies[i - 1].gate_revision
        run = policy.calibration_run
        if by_itself and (run is None or any(older.calibration_run == run for older in policies[:i])):
            closers.add(policy.created_by if policy.created_by in (MONITOR, WARNING) else "")
    by: Closer
    if "" in closers:
        by = "person"
    elif closers:
        by = "alarm" if MONITOR in closers else "warning"
    else:
        by = "calibration" if newest.calibrated else "nobody"
    return Closing(by=by, served=served, alarms=sum(one.created_by == MONITOR for one in policies))


def verdict(
    settings: GateSettings,
    plain: Comparison,
    *,
    closed: Closing | None = None,
    worst_label: Comparison | None = None,
    safely_reopened: bool = False,
    alarms: Collection[str] = (),
    evidence: float = 0.0,
    unwatched: str | None = None,
    worse: str | None = None,
    unskilled: str | None = None,
) -> Verdict:
    """Say what becomes of a run by the rules `propose` and `auto`; `plain` is the run beside the
    policy in force.

    `closed`: how it came that the policy ships nothing. `worst_label`: the run with every severity
    at the highest that the response ever got; asked for by the rule `auto` where the plain run is
    looser. `safely_reopened`: that run is no looser than what served before the alarm. `alarms`:
    kinds of the alarms on the risk in service that stand raised. `evidence`: of the risk alarm,
    from the labels that are known. In words, None where it is not so: `unwatched`, that no alarm
    reads what is decided; `worse`, that the newest groups are worse than older ones; `unskilled`,
    that what would ship is no better than what would be held.
    """
    if plain.direction == "same":
        if closed is not None:
            return Verdict(
                outcome="unchanged", why="nothing ships either way: the labels allow no threshold yet"
            )
        return Verdict(outcome="unchanged", why="it found what is in force already")
    if settings.recalibrate != "auto":
        notes = [f"the gate's rule is {settings.recalibrate}"]
        if closed is not None and unskilled is not None:
            notes.append(unskilled)
        if worse is not None:
            notes.append(_newest(worse))
        return Verdict(outcome="proposed", why="; ".join(notes))
    if plain.direction == "tighter":
        beyond = plain.beyond(settings)
        why = "it holds more than before, which acts at once"
        if worse is not None:
            why += f"; {_newest(worse)}"
        if beyond:
            why += f"; beyond the limits: {', and '.join(beyond)}"
        return Verdict(outcome="applied", why=why, large=bool(beyond))
    if worst_label is None:
        raise ValueError("a looser run is judged beside that on worst labels")
    against = _against_loosening(settings, closed, worst_label, safely_reopened)
    against += _standing(alarms, closed)
    if evidence >= MOST_EVIDENCE and closed is None:
        against.append(f"the risk alarm's evidence is {evidence:.3g}, it must be below {MOST_EVIDENCE:g}")
    if unwatched is not None and closed is None:
        against.append(unwatched)
    if worse is not None:
        against.append(_newest(worse))
    if closed is not None and unskilled is not None:
        against.append(f"{unskilled}: a gate does not open by itself then")
    if against:
        return Verdict(outcome="proposed", why="it holds less than before, and " + "; ".join(against))
    if closed is not None and closed.by == "alarm":
        why = (
            f"reopened after an alarm: calibrated on {worst_label.labelled_groups} groups decided since, no looser than "
            "what served before it"
        )
    else:
        why = (
            f"it holds less than before, within the limits, on {worst_label.labelled_groups} labelled groups, "
            f"{worst_label.new_groups} of them new"
        )
    return Verdict(outcome="applied", why=why, worst_label=True)


def _newest(worse: str) -> str:
    return f"the newest groups are worse: {worse}"


def _standing(alarms: Collection[str], closed: Closing | None) -> list[str]:
    """Say which alarms stand against it. The one that closed the gate is answered by what it was calibrated on since."""
    said = []
    if "draws" in alarms:
        said.append(
            "the alarm on the audit's draws stands: until that is explained and acknowledged, no label counts for more"
        )
    if closed is not None and closed.by == "alarm":
        return said
    for kind, named in _ON_LABELS.items():
        if kind in alarms:
            said.append(f"{named} stands: a person has to look, and acknowledge it")
    if {"drift_scores", "drift_cloud"} & set(alarms):
        said.append("a drift alarm stands: what comes is not what was calibrated on")
    return said


_ON_LABELS = {
    "risk": "the risk alarm",
    "selective": "the selective-risk alarm",
    "missing": "the alarm on missing labels",
}


def _against_loosening(
    settings: GateSettings, closed: Closing | None, worst_label: Comparison, safely_reopened: bool
) -> list[str]:
    """Say everything that stands against a looser threshold acting by itself."""
    if closed is not None and closed.by == "person":
        return ["a person closed the gate: only a person opens it"]
    if closed is not None and closed.by == "warning":
        return ["an early warning holds the gate: labels of its newest answers let it go, or a person does"]
    if worst_label.direction != "looser":
        return ["it would not with the highest severities that anybody ever gave"]
    against = []
    if worst_label.labelled_groups < settings.least_groups:
        against.append(
            f"{worst_label.labelled_groups} groups have a label, at least {settings.least_groups} must"
        )
    least_new = least_new_groups(settings)
    if worst_label.new_groups < least_new:
        against.append(
            f"{worst_label.new_groups} of its labelled groups are new since the policy in force, at least {least_new} must be"
        )
    if closed is not None and closed.by == "alarm":
        if not safely_reopened:
            against.append("it is looser than what served before the alarm, or that cannot be compared")
    else:
        against += worst_label.beyond(settings)
    return against
