"""What a question about the past reads, beside the past itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from streamer.gates.policy import CandidatePolicy, MadeBeside, Policy
from streamer.gates.settings import GateSettings
from streamer.recalibration.run import AuditSample, Since
from streamer.recalibration.verdict import Proposal


class PastSample(AuditSample, Protocol):
    """Where calibrations read."""

    def alarm_closure(self, gate: str) -> Since | None:
        """Return where the newest alarm that closed the gate, or should have, restarts its sample; None: nowhere."""
        ...

    def proposal(self, gate: str) -> Proposal | None:
        """Return the threshold that waits for a person; None: there is none."""
        ...


class PastPolicies(Protocol):
    """Where policies are."""

    def get(self, gate: str, version: int) -> Policy:
        """Return one version. Raises `UsageError` when it does not exist."""
        ...

    def list(self, gate: str) -> Sequence[Policy]:
        """Return every version that is trusted, the oldest first."""
        ...


class CandidateRecord(Protocol):
    """Where candidate policies are, and what they made of batches."""

    def present(self, gate: str) -> tuple[CandidatePolicy, GateSettings]:
        """Return the gate's candidate and its settings. Raises `UsageError` where it has none."""
        ...

    def made(self, gate: str, settings: GateSettings, numbers: Sequence[int]) -> Iterable[MadeBeside]:
        """Return what candidates with the scorer and the encoder of these settings made of batches; not all need be there."""
        ...
