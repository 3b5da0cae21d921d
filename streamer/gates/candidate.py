"""A candidate policy: decided beside the policy in force on the same batches, recorded, and never acted on. Pure values."""

from dataclasses import dataclass
from datetime import datetime

from streamer.gates.rule import INDICATOR, Cut, Needed, Rule
from streamer.gates.settings import GateSettings

TOO_SLOW, NO_ENCODER_HERE, OTHER_UNIT = "too_slow", "no_encoder", "other_unit"
NOT_TRIED = frozenset({TOO_SLOW, NO_ENCODER_HERE, OTHER_UNIT})
"""Why a candidate has no scores where that says nothing about the batch: in force it would have had them. Comparisons leave these
out; what it could not score for another reason it would have held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePolicy:
    """One line of a gate's story of candidates; the newest is the one that counts.

    Attributes
    ----------
    number : from 1, in the order in which those of all gates were set.
    settings : what it decides by, as they were when it was set; None: from here on there is no candidate.
    cut : where it cuts; None: it scores, and decides nothing.
    rule : how the cut is read.
    guarantee : what its calibration promises; empty for a threshold that somebody gave, and without one.
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
    """What a candidate made of one batch of n responses.

    Attributes
    ----------
    candidate : its number.
    scores : n of them, in [0, 1], in event order; None where it has none.
    shipped : n marks of what it would have shipped; None without scores or a threshold.
    why : why it has no scores: `NOT_TRIED`, or a reason as holds have them; None with scores.
    signals : of what its unit may ship, by its own list: d float32, little-endian; None where it keeps none.
    needed : the budget that the batch would have shipped with; None where its rule does not say.
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
