"""What a record of decisions says of answers: the values that an evaluation reads, and the port that gives them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from streamer.clouds.cloud import NOT_KEPT, Cloud, CloudResponse
from streamer.gates.settings import GateSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """One response of a decided batch; `blank` : nothing but white space, for all that is known.

    `text` is None where the gate keeps no texts, or where it was erased; `score`, that decided, for
    a batch that was held without being scored; `severity`, the present one of the gate's kind,
    until there is one for a response that the audit drew.
    """

    id: str
    text: str | None
    score: float | None
    blank: bool
    severity: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """A first attempt that the audit sample took, or that was held unscored for its answers where
    it takes every batch.

    `probability` is that with which the gate's audit took a batch then. `waits` : a response that
    the audit drew has no label. `signals` is the recorded row of what its unit may ship, d float32,
    little-endian; None where another list of signals made it. `metadata` is None once erased.
    """

    batch_id: str
    prompt: str | None
    references: tuple[str, ...]
    probability: float
    responses: tuple[StoredResponse, ...]
    decided_at: datetime
    waits: bool
    signals: bytes | None
    metadata: Mapping[str, Any] | None

    def cloud(self, kind: str) -> Cloud:
        """The answers as a file has them, with severities of a kind."""
        return Cloud(
            question_id=self.batch_id,
            question=NOT_KEPT if self.prompt is None else self.prompt,
            references=self.references,
            responses=tuple(
                CloudResponse(
                    id=one.id,
                    text=one.text if one.text is not None else "" if one.blank else NOT_KEPT,
                    severity=one.severity,
                    kind=kind,
                )
                for one in self.responses
            ),
        )

    @property
    def scores(self) -> tuple[float, ...] | None:
        """Of its responses, that decided; None where it was held without any."""
        found = tuple(one.score for one in self.responses if one.score is not None)
        return found if len(found) == len(self.responses) else None


class AnswerStore(Protocol):
    """What a store has to be, to be evaluated from."""

    def audited(
        self, gate: str, *, settings: GateSettings, older_than: datetime, since: datetime | None = None
    ) -> Sequence[StoredBatch]:
        """Batches decided from `since` on and before `older_than` by these settings' scorer and encoder, the oldest first."""
