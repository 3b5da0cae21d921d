"""A gate's revisions, and the numbered policy that it decides with. Pure: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from streamer.calibration.threshold import ThresholdState
from streamer.gates.policy_gate import Bursts, CalibrationLosses
from streamer.gates.rule import INDICATOR, Rule, ships_nothing
from streamer.gates.settings import GateSettings

RECALIBRATOR = "recalibrator"
"""Who makes runs and policies when the service does so by itself."""

MONITOR = "monitor"
"""Who makes the policies that an alarm closes a gate with: no person may act under this name."""

WARNING = "early-warning"
"""Who makes the policies that hold a gate for an early warning, and let it go again."""

PROGRAM = (RECALIBRATOR, MONITOR, WARNING)
"""Names that no person may act under."""

SIGNED_IN = "account:"
"""Begins the name of a person who had signed in at the console. Commands refuse such names: what they record is a claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRevision:
    """Revision `revision` (from 1) of a gate. `seed` and `audit_salt` are drawn when the gate is created
    and never change: calibration randomness and the audit draw derive from them."""

    gate: str
    revision: int
    settings: GateSettings
    seed: int
    audit_salt: bytes
    created_at: datetime
    created_by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One numbered, immutable version of everything that a gate decides with.

    Attributes
    ----------
    version : from 1, one monotonic sequence per gate.
    gate_revision : the revision whose settings this policy carries.
    state : `closed` (ship nothing), `cut` (ship what passes lambda) or `open` (ship all).
    threshold : lambda; None unless `state` is `cut`.
    rule : how lambda is to be read. Under `BatchCut` lambda is the strictest that a batch can get; under
        `Segments` state and lambda are those of every segment that has none of its own.
    calibration_run : the run that found the threshold; None for a policy that no run made.
    calibrated : False until a calibration has decided for these settings; such a policy is `closed`
        and its decisions say `no_threshold`.
    guarantee : what is promised, in words; empty when nothing is.
    losses, bursts : of the prompts that it was calibrated on, read from the record; not part of the policy.
    """

    gate: str
    version: int
    gate_revision: int
    settings: GateSettings
    state: ThresholdState
    threshold: float | None
    calibrated: bool
    calibration_run: int | None
    seed: int
    valid_from: datetime
    guarantee: str
    created_by: str
    reason: str
    rule: Rule = INDICATOR
    losses: CalibrationLosses | None = field(default=None, compare=False, repr=False)
    bursts: Bursts | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if (self.state == "cut") != (self.threshold is not None):
            raise ValueError(f"a {self.state} policy has threshold {self.threshold!r}")
        if not self.calibrated and self.state != "closed":
            raise ValueError("a policy that was never calibrated is closed")

    @property
    def ships_nothing(self) -> bool:
        """Whether it is closed for every batch there may be: no segment has a cut of its own that ships either."""
        return ships_nothing(self.state, self.rule)

    @property
    def held_early(self) -> bool:
        """Whether an early warning holds the gate."""
        return self.created_by == WARNING and self.calibration_run is None and self.ships_nothing

    def as_closed(self) -> Policy:
        """What is left of it where nothing may ship any more: the settings, and neither a cut nor a promise."""
        return replace(
            self,
            state="closed",
            threshold=None,
            rule=INDICATOR,
            calibration_run=None,
            guarantee="",
            losses=None,
            bursts=None,
        )
