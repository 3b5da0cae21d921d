"""How each gate stands between two runs: what the schedule looks at, and what the gauges show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from streamer.gates.policy import GateRevision, Policy

MOST_COUNTED = 10_000
"""New groups are counted up to here: the count must stay cheap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """The newest calibration run of a gate, whoever asked for it.

    `usable`: it was calibrated for what the gate is set to now, and for the world as it is since
    the last alarm. `candidates`: (calibrator, lambda); a lambda of None is closed or open.
    """

    run: int
    finished_at: datetime
    groups: int
    usable: bool
    candidates: tuple[tuple[str, float | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStatus:
    """A gate, its policy in force and what came since its newest run.

    `new_groups`: groups with a label that a run would read now and the newest usable run has not
    read with one; `raised_groups`: those that it has read with one, and of which a response got a
    higher one since: they may bring a run about, and are no new evidence for holding less. Each at
    most `MOST_COUNTED`. `proposed`: the newest run's threshold waits for a person. `held_until`:
    the end of the wait of a looser threshold. `labels`: labels of the gate that came since this
    process began to look. `missing_key`: why no policy of it can be made here for want of a key to
    sign with.
    """

    gate: GateRevision
    policy: Policy
    last: LastRun | None
    new_groups: int
    proposed: bool
    raised_groups: int = 0
    held_until: datetime | None = None
    labels: int = field(default=0, compare=False)
    missing_key: str | None = None

    @property
    def news(self) -> int:
        """Groups that count towards the next run."""
        return self.new_groups + self.raised_groups


class GateStatuses(Protocol):
    """Where gates are looked up."""

    def statuses(self, *, now: datetime, recount: bool = True) -> Sequence[GateStatus]:
        """Return how every gate stands, by name.

        Without `recount` groups are counted where labels came, and of the others in turn: what is quiet costs little, and
        a count may be some seconds old, or a minute or two where a row became visible late.
        """

    def labels_pending(self) -> Mapping[str, int]:
        """Return how many drawn responses of each gate wait for a severity."""

    def labels_unread(self) -> Mapping[str, int]:
        """Return how many labels of each gate are recorded and not read."""
