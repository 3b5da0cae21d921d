"""The newest run of each gate: found by a few queries for all gates, and kept, for what is written does not change."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from streamer.gates.settings import GateSettings
from streamer.recalibration.age_cut import AgeCut
from streamer.store.db.schema import calibration_candidates, calibration_runs, gate_revisions
from streamer.store.db.schema.joins import REVISION_OF_RUN
from streamer.store.db.schema.types import of_row
from streamer.store.policies.policy_rows import SETTINGS, settings_of

_LATE_RUNS = 1000
"""A run gets its number when it is written and may become visible after so many later ones."""


class NewestRun(NamedTuple):
    """The newest run of a gate, as far as the next one is concerned."""

    number: int
    started_at: datetime
    finished_at: datetime
    groups: int
    candidates: tuple[tuple[str, float | None], ...]
    settings: GateSettings
    older_than: datetime
    since_version: int | None
    labels_through: int
    unchanged: bool
    held_until: datetime | None
    age_cut: AgeCut


class NewestRuns:
    """The newest run of each gate that has one."""

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}
        self._runs: dict[str, NewestRun] = {}

    def look(self, connection: sa.Connection) -> dict[str, NewestRun]:
        """Read those that came, and return all of them by gate."""
        through = max(self._newest.values(), default=0) - _LATE_RUNS
        query = sa.select(calibration_runs.c.gate, sa.func.max(calibration_runs.c.id)).where(
            calibration_runs.c.id > through
        )
        for gate, number in connection.execute(query.group_by(calibration_runs.c.gate)):
            self._newest[gate] = max(number, self._newest.get(gate, 0))
        unknown = [
            number
            for gate, number in self._newest.items()
            if (known := self._runs.get(gate)) is None or known.number != number
        ]
        for start in range(0, len(unknown), 500):
            self._runs |= dict(_runs(connection, unknown[start : start + 500]))
        return self._runs


def _runs(connection: sa.Connection, numbers: Iterable[int]) -> Iterator[tuple[str, NewestRun]]:
    candidates: dict[int, list[tuple[str, float | None]]] = {}
    for one in connection.execute(
        sa.select(
            calibration_candidates.c.run, calibration_candidates.c.method, calibration_candidates.c.threshold
        )
        .where(calibration_candidates.c.run.in_(numbers))
        .order_by(calibration_candidates.c.run, calibration_candidates.c.method)
    ):
        candidates.setdefault(one.run, []).append((one.method, one.threshold))
    query = (
        sa.select(
            calibration_runs.c.id,
            calibration_runs.c.gate.label("of_gate"),
            *calibration_runs.c["started_at", "finished_at", "groups", "older_than", "since_version"],
            *calibration_runs.c["labels_through", "outcome", "held_until", "age_cut"],
            *gate_revisions.c[SETTINGS],
        )
        .join(gate_revisions, REVISION_OF_RUN)
        .where(calibration_runs.c.id.in_(numbers))
    )
    for row in connection.execute(query).mappings():
        yield (
            row["of_gate"],
            of_row(
                NewestRun,
                row,
                number=row["id"],
                candidates=tuple(candidates.get(row["id"], ())),
                settings=settings_of(row),
                unchanged=row["outcome"] == "unchanged",
                age_cut=AgeCut.from_json(row["age_cut"]),
            ),
        )
