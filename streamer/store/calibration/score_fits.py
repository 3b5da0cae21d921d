"""What became of each fit of a learned score by the service: proposed, refused, or rejected by a person. Append-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.labels.learning import ScoreFit
from streamer.scoring.learned import LearnedModel
from streamer.store.audit import control
from streamer.store.db.schema import gate_revisions, score_fits
from streamer.store.db.schema.joins import revision_of
from streamer.store.policies.policy_rows import SETTINGS, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from streamer.gates.policy import GateRevision
    from streamer.labels.learning import Lesson
    from streamer.store.db.engine import Database
    from streamer.store.policies.gates import Gates

_LONGEST_REASON = 2000


class ScoreFits:
    """Keeps and reads them."""

    def __init__(self, database: Database, *, gates: Gates, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._gates = gates
        self._clock = clock

    def record(self, gate: GateRevision, lesson: Lesson | None, *, labelled: int, why: str, by: str) -> str:
        """Keep what became of a fit: `proposed` where the lesson is worth having, else `refused`; returns which.

        Parameters
        ----------
        lesson : None where no model could be fitted.
        labelled : labelled prompts in both folds when the fit was due.
        why : the figures in words, or why there is no model.
        """
        proposed = lesson is not None and lesson.worth.shown
        values = {
            "gate": gate.gate,
            "gate_revision": gate.revision,
            "outcome": "proposed" if proposed else "refused",
            "scorer": None if lesson is None else lesson.model.name,
            "model": None if lesson is None else lesson.model.text,
            "labelled": labelled,
            "before": None if lesson is None else lesson.worth.gram,
            "after": None if lesson is None else lesson.worth.learned,
            "error": None if lesson is None else lesson.worth.error,
            "reason": why[:_LONGEST_REASON],
            "by": by,
        }
        self._database.writing(lambda connection: self._insert(connection, values))
        return str(values["outcome"])

    def newest(self, gate: str) -> ScoreFit | None:
        """What is newest on record of a gate; None: nothing was fitted yet."""
        with self._database.reading() as connection:
            return self.read(connection).get(gate)

    def proposal(self, gate: str) -> ScoreFit | None:
        """The score that is proposed to a gate and waits for a person; None where none does."""
        found = self.newest(gate)
        return found if found is not None and found.waits(self._gates.get(gate).settings) else None

    def reject(self, gate: str, *, by: str, reason: str) -> ScoreFit:
        """Record that somebody does not want what is proposed, which is then proposed no more; returns it.

        Raises `UsageError` where nothing is proposed, or no reason is given.
        """
        if not reason.strip():
            raise UsageError("say why the proposal is rejected")
        found = self.proposal(gate)
        if found is None:
            raise UsageError(f"no score is proposed for gate {gate!r}")

        def work(connection: sa.Connection) -> None:
            present = self.read(connection).get(gate)
            if present is None or present.id != found.id:
                raise UsageError(f"what is proposed for gate {gate!r} has changed meanwhile; look again")
            row = (
                connection.execute(sa.select(score_fits).where(score_fits.c.id == found.id)).mappings().one()
            )
            self._insert(
                connection,
                {name: value for name, value in row.items() if name != "id"}
                | {"outcome": "rejected", "reason": reason[:_LONGEST_REASON], "by": by},
            )

        self._database.writing(work)
        return found

    def _insert(self, connection: sa.Connection, values: dict[str, Any]) -> None:
        now = self._clock()
        control.insert(connection, score_fits, values | {"at": now}, now=now)

    def read(self, connection: sa.Connection) -> dict[str, ScoreFit]:
        """Read the newest of each gate that has any."""
        last = sa.select(sa.func.max(score_fits.c.id)).group_by(score_fits.c.gate)
        # Both tables have columns `gate` and `model`.
        own = [one.label(f"fit_{one.name}") for one in score_fits.c]
        query = (
            sa.select(*own, *(gate_revisions.c[name] for name in SETTINGS))
            .join_from(score_fits, gate_revisions, revision_of(score_fits))
            .where(score_fits.c.id.in_(last))
        )
        return {row["fit_gate"]: _fit(row) for row in connection.execute(query).mappings()}


def _fit(row: sa.RowMapping) -> ScoreFit:
    text = row["fit_model"]
    return ScoreFit(
        gate=row["fit_gate"],
        outcome=row["fit_outcome"],
        settings=settings_of(row),
        model=None if text is None else LearnedModel.of_text(text),
        labelled=row["fit_labelled"],
        before=row["fit_before"],
        after=row["fit_after"],
        error=row["fit_error"],
        reason=row["fit_reason"],
        by=row["fit_by"],
        at=row["fit_at"],
        id=row["fit_id"],
    )
