"""What a record of decisions says of answers: the values that an evaluation reads, and the port that gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from streamer.gates.settings import GateSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """One response of a decided batch.

    Attributes
    ----------
    text : None where the gate keeps no texts, or where it was erased.
    score : that decided; None for a batch that was held without being scored.
    blank : it was nothing but white space, as far as the record shows.
    severity : the present one of the gate's kind, for responses that the audit drew; None while there is none.
    """

    id: str
    text: str | None
    score: float | None
    blank: bool
    severity: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """A first attempt that the audit sample took, or that was held unscored for its answers where it takes every batch.

    Attributes
    ----------
    probability : with which the gate's audit took a batch then.
    """

    batch_id: str
    prompt: str | None
    references: tuple[str, ...]
    probability: float
    responses: tuple[StoredResponse, ...]


class AnswerStore(Protocol):
    """What a store has to be, to be evaluated from."""

    def audited(self, gate: str, *, settings: GateSettings, older_than: datetime) -> Sequence[StoredBatch]:
        """Batches decided before `older_than` under these settings' scorer and encoder, in order of decision."""
        ...
