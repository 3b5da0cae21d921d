"""A gate's revisions, and the numbered policy that it decides with. Pure: plain values."""

from __future__ import annotations

import hmac
import json
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from streamer.calibration.threshold import ThresholdState
from streamer.gates.audit_rate import AuditRate
from streamer.gates.rule import INDICATOR, CalibrationLosses, Cut, Needed, Rule, ships_nothing
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


LONGEST_SEGMENT = 200
"""Characters that the name of a segment may have."""


_LARGEST_WHOLE = 10**18


@dataclass(frozen=True, slots=True)
class Bursts:
    """The bursts of which nothing ships: those with a bad label among the prompts that a policy was made of.

    `key`: the metadata key that names bursts, or `prompt`. `secret`: of the hashes that stand for
    names; None: it was erased, and no batch is told its burst any more. `bad`: ids of the prompts
    with a bad label, by burst.
    """

    key: str
    secret: bytes | None
    bad: Mapping[str, Collection[str]]

    def name(self, prompt: str, metadata: Mapping[str, Any]) -> str | None:
        """Return what stands for the burst of a batch, 64 hexadecimal digits; None where it is the only one of its burst."""
        return self.sealed(burst_of(prompt, metadata, self.key))

    def sealed(self, name: str | None) -> str | None:
        """Return what stands for a burst by its name, where it has one and the secret is known."""
        return None if name is None or self.secret is None else sealed_burst(name, self.secret)

    def holds(self, burst: str | None, prompt: str | None = None) -> bool:
        """Whether another prompt of this burst than the one with this id has a bad label."""
        return any(one != prompt for one in self.bad.get(burst or "", ()))


def sealed_burst(name: str, secret: bytes) -> str:
    """Return what stands for a burst on record: nobody without the secret can test what its name is."""
    return hmac.digest(secret, name.encode(), "sha256").hex()


def segment_of(metadata: Mapping[str, Any], key: str) -> str:
    """Return the segment that metadata name under `key`: a text, or a whole number or a truth value written as JSON.

    The empty text stands for batches that name none (or something else, or more than `LONGEST_SEGMENT` characters): a
    segment like any other.
    """
    value = metadata.get(key)
    if isinstance(value, int) and abs(value) < _LARGEST_WHOLE:
        return json.dumps(value)
    return value if isinstance(value, str) and len(value) <= LONGEST_SEGMENT else ""


def burst_of(prompt: str, metadata: Mapping[str, Any], key: str) -> str | None:
    """Return what names the burst of a batch: the value of a metadata key, or under `prompt` its question but for case and spaces.

    None where it is the only one of its burst.
    """
    if key == "prompt":
        prompt = unicodedata.normalize("NFKC", prompt).lower()
    return (" ".join(prompt.split()) if key == "prompt" else segment_of(metadata, key)) or None


class Closing(NamedTuple):
    """By which policy somebody, or an alarm, closed a gate: who, when and why."""

    version: int
    by: str
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One numbered, immutable version of everything that a gate decides with; `version`: from 1,
    one monotonic sequence per gate.

    `state` is `closed` (ship nothing), `cut` (ship what passes lambda, the `threshold`) or `open`
    (ship all), and `rule` how lambda is to be read: under `BatchCut` it is the strictest that a
    batch can get; under `Segments` state and lambda are those of every segment that has none of its
    own. `calibrated`: False until a calibration has decided for these settings; such a policy is
    `closed` and its decisions say `no_threshold`. `guarantee`: what is promised, in words; empty
    when nothing is. Read from the record, and not part of the policy: `losses`, `bursts`, of the
    prompts that it was calibrated on; `closing`, where it only changed settings of a gate that
    another policy had closed.
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
    closing: Closing | None = field(default=None, compare=False, repr=False)

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


TOO_SLOW, NO_ENCODER_HERE, OTHER_UNIT = "too_slow", "no_encoder", "other_unit"
NOT_TRIED = frozenset({TOO_SLOW, NO_ENCODER_HERE, OTHER_UNIT})
"""Why a candidate has no scores where that says nothing about the batch: in force it would have had them. Comparisons leave these
out; what it could not score for another reason it would have held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePolicy:
    """One line of a gate's story of candidates; the newest is the one that counts.

    `number`: from 1, in the order in which those of all gates were set. `settings`: what it decides
    by, as they were when it was set; None: from here on there is no candidate. `cut`: where it
    cuts; None: it scores, and decides nothing. `rule`: how the cut is read. `guarantee`: what its
    calibration promises; empty for a threshold that somebody gave, and without one.
    """

    number: int
    gate: str
    settings: GateSettings | None
    cut: Cut | None = None
    rule: Rule = INDICATOR
    guarantee: str = ""
    by: str
    reason: str
    at: datetime

    def __post_init__(self) -> None:
        if self.settings is None and self.cut is not None:
            raise ValueError("where there is no candidate there is no threshold")


@dataclass(frozen=True, slots=True)
class CandidateDecision:
    """What the candidate of a number made of one batch of n responses.

    `scores`, n in [0, 1], in event order, or `why` it has none: `NOT_TRIED`, or a reason as holds
    have them. `shipped`: n marks of what it would have shipped; None without scores or a threshold.
    `signals`: of what its unit may ship, by its own list: d float32, little-endian; None where it
    keeps none. `needed`: the budget that the batch would have shipped with; None where its rule
    does not say.
    """

    candidate: int
    scores: tuple[float, ...] | None = None
    shipped: tuple[bool, ...] | None = None
    why: str | None = None
    signals: bytes | None = None
    needed: Needed | None = None


@dataclass(frozen=True, slots=True)
class MadeBeside:
    """The same as it is on record: of the batch that the store calls `number`, whose responses in event order are these."""

    number: int
    response_ids: tuple[str, ...]
    decision: CandidateDecision


@dataclass(frozen=True, slots=True)
class ActivePolicy:
    """A gate's newest policy with the secret that its audit draw derives from.

    `trusted` False: nobody vouches for any policy of this gate; whatever comes is held. `newest_seen` is the version of
    the gate's newest policy when this one was chosen; it is above the policy's own where later ones were refused. `rate` is
    the newest of the gate's audit rates, `candidate` the newest line of its story of candidate policies.
    """

    policy: Policy
    audit_salt: bytes
    trusted: bool = True
    newest_seen: int = 0
    rate: AuditRate | None = None
    candidate: CandidatePolicy | None = None
