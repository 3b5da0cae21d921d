"""What a gate is, and the numbered policy that it decides with. Pure: plain values and their rules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from datetime import datetime

Unit = Literal["best", "response", "batch"]
Mode = Literal["shadow", "enforce"]
HoldAction = Literal["abstain", "regenerate", "escalate"]
ThresholdState = Literal["closed", "cut", "open"]
Scorer = Literal["gram", "external"]

UNITS: tuple[Unit, ...] = get_args(Unit)
THRESHOLD_STATES: tuple[ThresholdState, ...] = get_args(ThresholdState)
MODES: tuple[Mode, ...] = get_args(Mode)
HOLD_ACTIONS: tuple[HoldAction, ...] = get_args(HoldAction)
SCORERS: tuple[Scorer, ...] = get_args(Scorer)
LAWS: tuple[str, ...] = ("mean", "crc", "bb", "rbwa")
"""The laws of the weights within a group: what the budget-on-average calibrators choose among."""

METHODS: tuple[str, ...] = LAWS
"""The calibrators that a gate may name."""

NO_ENCODER = "none"
"""The encoder of a gate whose scorer is `external`."""

GATE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
GATE_NAME_RULE = "1 to 64 of a-z, 0-9, '.', '_', '-', the first a letter or digit"
"""`GATE_NAME` in words, for error messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    """Everything that a risk owner decides about a gate; one append-only revision holds one of these.

    Attributes
    ----------
    unit : what ships; see `streamer.gate`.
    scorer : `gram` (Gram energy of embeddings) or `external` (a score in the event).
    encoder : ``name@hash``, for example ``all-MiniLM-L6-v2@53aa5117``; `NO_ENCODER` for `external`.
    severity_kind : the kind of label that controls this gate (`human`, `lexical`, ...).
    alpha : the budget on exposure risk, in (0, 1).
    method : the calibrator, one of `METHODS`, chosen before any label is read.
    eta : Dirichlet concentration of `rbwa`, > 0.
    draws : bootstrap draws per group of `bb`, >= 1.
    hold_action : what happens to what is not shipped.
    max_attempts : R >= 1; calibration uses alpha / R, attempts beyond R are held.
    mode : `shadow` tells consumers not to enforce.
    audit_probability : chance in [0, 1] that a batch is drawn for labelling.
    audit_draws : responses drawn for labelling from a drawn batch, >= 1 (unit `best` always draws its best).
    label_deadline_seconds : a drawn batch enters calibration once it is older than this, >= 0.
    decision_deadline_seconds : a batch whose `created_at` is older is held; None: never.
    """

    unit: Unit = "best"
    scorer: Scorer = "gram"
    encoder: str
    severity_kind: str = "human"
    alpha: float = 0.05
    method: str = "mean"
    eta: float = 1.0
    draws: int = 20
    hold_action: HoldAction = "abstain"
    max_attempts: int = 1
    mode: Mode = "shadow"
    audit_probability: float = 0.05
    audit_draws: int = 1
    label_deadline_seconds: float = 0.0
    decision_deadline_seconds: float | None = None

    def __post_init__(self) -> None:
        for name, allowed in (
            ("unit", UNITS),
            ("scorer", SCORERS),
            ("method", METHODS),
            ("hold_action", HOLD_ACTIONS),
            ("mode", MODES),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}")
        for name, ok, want in (
            ("alpha", 0 < self.alpha < 1, "between 0 and 1, both excluded"),
            ("audit_probability", 0 <= self.audit_probability <= 1, "in [0, 1]"),
            ("eta", 0 < self.eta < float("inf"), "positive and finite"),
            ("draws", self.draws >= 1, "at least 1"),
            ("max_attempts", 1 <= self.max_attempts <= 1000, "in 1..1000"),
            ("audit_draws", 1 <= self.audit_draws <= 256, "in 1..256"),
            ("label_deadline_seconds", 0 <= self.label_deadline_seconds < float("inf"), "0 or more"),
            (
                "decision_deadline_seconds",
                self.decision_deadline_seconds is None or 0 < self.decision_deadline_seconds < float("inf"),
                "positive, or absent",
            ),
            ("severity_kind", GATE_NAME.fullmatch(self.severity_kind), "like 'human'"),
            ("encoder", 0 < len(self.encoder) <= 200, "1 to 200 characters"),
        ):
            if not ok:
                raise ValueError(f"{name} must be {want}, not {getattr(self, name)!r}")
        if (self.scorer == "external") != (self.encoder == NO_ENCODER):
            raise ValueError(f"an external scorer goes with encoder {NO_ENCODER!r}, and only that")


RECALIBRATING_FIELDS = frozenset(
    {"unit", "scorer", "encoder", "severity_kind", "alpha", "method", "eta", "draws", "max_attempts"}
)
"""A change of any of these makes the present threshold meaningless: the gate closes until recalibrated."""


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
    state : `closed` (ship nothing), `cut` (ship iff Q > lambda) or `open` (ship all).
    threshold : lambda; None unless `state` is `cut`.
    calibration_run : the run that found the threshold; None for a policy that no run made.
    calibrated : False until a calibration has decided for these settings; such a policy is `closed`
        and its decisions say `no_threshold`.
    guarantee : what is promised, in words; empty when nothing is.
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

    def __post_init__(self) -> None:
        if (self.state == "cut") != (self.threshold is not None):
            raise ValueError(f"a {self.state} policy has threshold {self.threshold!r}")
        if not self.calibrated and self.state != "closed":
            raise ValueError("a policy that was never calibrated is closed")
