"""What watching needs a store to be; `streamer.store` implements it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from streamer.events.alerts import AlarmKind, AlertsV1
from streamer.gates.audit_rate import AuditRate
from streamer.gates.policy import Policy
from streamer.risk.rounds.columns import LoggedDecisions
from streamer.risk.rounds.horizon import Probe, Watermark
from streamer.risk.rounds.logged import LoggedDecision
from streamer.risk.rounds.report import OpenAlert
from streamer.risk.rounds.state import GateWatch, WatchedAlarm, WatchedSequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a gate stands at one moment, under its newest policy; `salt` is the secret of its audit
    draw.

    `probe`: how far the record reaches. `acknowledged`: by the id of an alert that an alarm of
    `watch` raised, the newest batch when it was acknowledged; `alerts`: of alarms, that nobody has.
    `extra`: labels that raised rates asked for on the day of `rate`, the newest audit rate.
    `reopened`: the alarms of `watch` that closed the gate with a policy after which another one
    ships something, also where a later one ships nothing again.
    """

    watch: GateWatch
    policy: Policy
    salt: bytes
    probe: Probe
    acknowledged: Mapping[str, int]
    rate: AuditRate | None = None
    extra: int = 0
    alerts: tuple[OpenAlert, ...] = ()
    reopened: frozenset[AlarmKind] = frozenset()


class CalibratedSample(NamedTuple):
    """What a calibration run found of its own sample.

    `ship_share`: of the sample that its threshold ships, in [0, 1]; of claims the share of prompts
    that get any. `mean_severity`: of the sample as far as it was labelled, in [0, 1], whether it
    ships or not; of claims what a prompt loses if all of them ship.
    """

    ship_share: float
    mean_severity: float


class News(NamedTuple):
    """What came for the gates that are named; the others are as they were.

    `decided`, `labelled`: gates with decisions, with labels, in the stretch of the record that was
    asked for. `policies`: every gate's newest policy. `acknowledged`: of the alerts that were asked
    for.
    """

    decided: frozenset[str]
    labelled: frozenset[str]
    policies: Mapping[str, int]
    acknowledged: frozenset[str]


class Release(NamedTuple):
    """What ends an early hold by the policy `held`: the reason, and the alert that is answered by it, if nobody has."""

    held: int
    reason: str
    alert_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What one round of a gate writes, all or nothing: where watching stands from now on, and the
    sequences and alarms that `ended` on the way.

    `close`: why the gate is to be closed, by the alarms `closing`; `hold`: why it is to be held
    early; `release`: what lets it go; `rate`: the audit rate from now on. None: it is not, or
    nothing does. `make_alerts` is given which policy closed the gate (None: none did) and why it
    could not be closed.
    """

    watch: GateWatch
    ended: Sequence[WatchedSequence | WatchedAlarm]
    close: str | None
    closing: frozenset[AlarmKind]
    make_alerts: Callable[[int | None, str | None], Sequence[AlertsV1]]
    rate: AuditRate | None = None
    hold: str | None = None
    release: Release | None = None


class WatchStore(Protocol):
    """Decisions, labels and the state of watching. Calls block; each raises `Unavailable` when the database is unavailable."""

    def probe(self) -> Probe:
        """How far the record reaches."""

    def news(self, *, after: Watermark, until: Watermark, alert_ids: Collection[str]) -> News:
        """What came between two marks, the second of which is settled, and which of these alerts are acknowledged."""

    def standing(self, gate: str) -> Standing | None:
        """How a gate stands; None when its newest policy cannot be read."""

    def decided(self, gate: str, *, after: int, until: int, limit: int) -> LoggedDecisions:
        """First attempts with numbers above `after` and up to `until`, the first `limit` of them, without severities."""

    def labelled(self, gate: str, decisions: LoggedDecisions, *, until: int) -> LoggedDecisions:
        """The same decisions with the severities and predictions that labels up to the number `until` give."""

    def relabelled(
        self, gate: str, numbers: Sequence[int], *, after: int, until: int
    ) -> Sequence[LoggedDecision]:
        """Of these decisions those that labels with numbers above `after` and up to `until` are of, as `labelled` gives them."""

    def urgent(self, gate: str, kind: str, count: int) -> Sequence[float | None]:
        """What labels of a kind, whoever asked for them, say of the newest `count` answers that shipped; None: nothing."""

    def calibrated(self, run: int) -> CalibratedSample | None:
        """What a calibration run found of its own sample; None where nothing of it was labelled."""

    def reference(self, run: int) -> LoggedDecisions:
        """The decisions that a calibration run read, in order, without severities."""

    def late_labels(self, gate: str, *, after: int, until: int, read: int) -> int:
        """How many labels with numbers above `after` and up to `until` are of responses that a decision up to `read` needed, and say what the labeller had not said before."""

    def write(self, before: GateWatch, written: Written) -> bool:
        """Write a round in one transaction; returns False, and writes nothing, when another was faster."""
