"""The recorded past of a gate in columns: what came, what was decided, what was drawn, and what labels say. Pure values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.gates.policy import Policy
from streamer.gates.rule import Cut, Needed

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Places = NDArray[np.int64]

MOST = 100_000
"""First attempts that are looked at, the newest of the period: more take long and make no interval much narrower."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Past:
    """First attempts of one gate in the order of the record, n of them with m responses in all.

    Of shape (n,), or n of them: `numbers`, rising, which the store calls each; `versions` of the
    policy that decided; `sampled`, whether the audit drew it, and `probability` in [0, 1], logged
    with the decision, 0 where it was not up for the draw; `selected`, the response that was shown,
    with the unit `best`; `bursts` and `segments`, as recorded by the policy that decided, None where
    it knew none; `burst_names`, by the key that was asked for, None where they are erased or each is
    the only one of its burst; `rows`, the signals of what its unit may ship, d float32,
    little-endian, None where none were kept; `needed`, the budget that it would have shipped with,
    None where its policy did not say. `cuts` has what cut each, as far as that was recorded, by
    place; `named`, by metadata key, the segment that each names, None where its metadata are erased.

    Of shape (m,), or m of them: `scores` in [0, 1], NaN where the batch was not scored; `uniforms` in
    (0, 1), NaN where the gate was not random; `severities` in [0, 1], the present mean over
    labellers, NaN where there is no label. The responses of batch i are `starts[i]` to
    `starts[i + 1]`, in event order, at least one; `starts` has shape (n + 1,).

    `policies` lacks one that this program cannot read. `earlier` : decisions of the period that are
    left out because there are more than were asked for.
    """

    gate: str
    numbers: Places
    batch_ids: Sequence[str]
    decided_at: Sequence[datetime]
    versions: Places
    policies: Mapping[int, Policy]
    sampled: Flags
    probability: Floats
    selected: Sequence[str | None]
    cuts: Mapping[int, Cut]
    segments: Sequence[str | None]
    named: Mapping[str, Sequence[str | None]]
    rows: Sequence[bytes | None]
    needed: Sequence[Needed | None]
    starts: Places
    response_ids: Sequence[str]
    scores: Floats
    uniforms: Floats
    blank: Flags
    shipped: Flags
    drawn: Flags
    severities: Floats
    earlier: int = 0
    bursts: Sequence[str | None] = ()
    burst_names: Sequence[str | None] = ()

    def __len__(self) -> int:
        return len(self.batch_ids)

    @cached_property
    def scored(self) -> Flags:
        """Which batches have scores: shape (n,). The others were held for a reason that no policy changes."""
        return self.by_batch(~np.isnan(self.scores)) > 0

    @cached_property
    def sizes(self) -> Places:
        """Responses of each batch: shape (n,)."""
        return np.diff(self.starts)

    @cached_property
    def base_probability(self) -> Floats:
        """The audit probability of the gate when each was decided, whatever raised it: shape (n,), in [0, 1]."""
        return self._of_policy(lambda policy: policy.settings.audit_probability, 0.0)

    @cached_property
    def could_ship(self) -> Flags:
        """Which were decided by a policy that ships something: shape (n,)."""
        return self._of_policy(lambda policy: float(not policy.ships_nothing), 0.0) > 0

    @cached_property
    def batch_of(self) -> Places:
        """The place of each response's batch: shape (m,); a batch may have no response."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @cached_property
    def first_wrong(self) -> Floats:
        """Of each batch the highest score of a drawn response with the severity 1, or -inf: shape (n,)."""
        found, wrong = np.full(len(self), -np.inf), self.drawn & (self.severities == 1)
        np.maximum.at(found, self.batch_of[wrong], self.scores[wrong])
        return found

    def by_batch(self, of_responses: Flags) -> Places:
        """Count the marked responses of each batch: shape (n,)."""
        return np.bincount(self.batch_of[of_responses], minlength=len(self))

    def of_batch(self, place: int) -> slice:
        """The responses of one batch."""
        return slice(int(self.starts[place]), int(self.starts[place + 1]))

    def where(self, rows: Flags) -> Past:
        """Return the marked batches, in their order."""
        if rows.all():
            return self
        places, kept = np.flatnonzero(rows).tolist(), np.repeat(rows, self.sizes)
        moved = {old: new for new, old in enumerate(places)}
        changes: dict[str, Any] = {
            "cuts": {moved[old]: cut for old, cut in self.cuts.items() if old in moved},
            "named": {key: [names[one] for one in places] for key, names in self.named.items()},
            "starts": np.concatenate(([0], np.cumsum(self.sizes[rows]))).astype(np.int64),
            "response_ids": [self.response_ids[one] for one in np.flatnonzero(kept).tolist()],
        }
        for name in ("numbers", "versions", "sampled", "probability"):
            changes[name] = getattr(self, name)[rows]
        for name in ("batch_ids", "decided_at", "selected", "segments", "rows", "needed"):
            values = getattr(self, name)
            changes[name] = [values[one] for one in places]
        for name in ("bursts", "burst_names"):
            values = getattr(self, name)
            changes[name] = [values[one] for one in places] if values else ()
        for name in ("scores", "uniforms", "blank", "shipped", "drawn", "severities"):
            changes[name] = getattr(self, name)[kept]
        return replace(self, **changes)

    def _of_policy(self, says: Callable[[Policy], float], otherwise: float) -> Floats:
        versions, places = np.unique(self.versions, return_inverse=True)
        values = [
            says(self.policies[one]) if one in self.policies else otherwise for one in versions.tolist()
        ]
        return np.array(values, dtype=np.float64)[places] if len(values) else np.zeros(0)


class PastReader(Protocol):
    """Where the past is read."""

    def read(
        self,
        gate: str,
        *,
        since: datetime,
        until: datetime,
        kind: str,
        keys: Collection[str] = (),
        group_by: str | None = None,
        most: int = MOST,
    ) -> Past:
        """Read the newest `most` first attempts decided from `since` on and before `until`, with labels of a kind.

        `keys` : the metadata keys of `Past.named`. `group_by` : the key of `Past.burst_names`.
        """
        ...
