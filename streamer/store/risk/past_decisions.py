"""The recorded past of a gate, for asking what another policy would have made of it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import sqlalchemy as sa

from streamer.audit.verification import UNREADABLE
from streamer.errors import Unreadable
from streamer.gates.batch_key import BatchKey
from streamer.gates.policy import Policy, burst_of, segment_of
from streamer.gates.rule import Cut, Needed
from streamer.scoring.judged import WHOLE
from streamer.store.db.schema import batches, decisions, responses
from streamer.store.db.schema.joins import DECIDED
from streamer.store.labels.revisions import Severities
from streamer.store.part import Part
from streamer.store.policies.policy_rows import read_versions
from streamer.whatif.past import MOST, Past

_PAGE = 5_000
_SEEN = "."
"""Stands for a text that has a score above 0, and so is not blank: texts are long, and only the others are asked for."""

_DECIDED = (
    decisions.c.batch,
    batches.c.batch_id,
    *decisions.c["decided_at", "policy_version", "unit", "sampled", "sampling_probability"],
    *decisions.c["selected", "cut_state", "cut_threshold", "segment", "burst"],
    *decisions.c["signals", "budget_count", "budget_groups"],
)
_ANSWERED = (
    *responses.c["batch", "response_id", "score", "uniform", "raw_energy", "action", "drawn"],
    sa.case((responses.c.score > 0, _SEEN), else_=responses.c.text).label("text"),
)
_BATCH = itemgetter(0)


class PastDecisions(Part):
    """Implements `streamer.whatif.past.PastReader`."""

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
        """The newest `most` first attempts decided from `since` on and before `until`, with labels of a kind.

        Raises `Unreadable` when a row is of no form that this program writes.
        """
        try:
            return self._past(gate, since, until, kind=kind, keys=keys, group_by=group_by, most=most)
        except UNREADABLE as error:
            raise Unreadable(
                f"the record of gate {gate!r} cannot be read ({type(error).__name__}: {error}); `streamer audit verify` says "
                "which row it is"
            ) from error

    def _past(
        self,
        gate: str,
        since: datetime,
        until: datetime,
        *,
        kind: str,
        keys: Collection[str],
        group_by: str | None,
        most: int,
    ) -> Past:
        with self._labels_of(gate) as (connection, labels):
            self._database.take_time(connection)
            wanted = [
                decisions.c.gate == gate,
                batches.c.attempt == 1,
                decisions.c.decided_at >= since,
                decisions.c.decided_at < until,
            ]
            count = connection.execute(
                sa.select(sa.func.count()).select_from(DECIDED).where(*wanted)
            ).scalar_one()
            if count > most:
                last = (
                    sa.select(decisions.c.batch)
                    .select_from(DECIDED)
                    .where(*wanted)
                    .order_by(decisions.c.batch.desc())
                    .offset(most - 1)
                    .limit(1)
                )
                wanted.append(decisions.c.batch >= connection.execute(last).scalar_one())
            severities = Severities.read(connection, labels, gate, kind)
            columns = _PastColumns(gate, severities, sorted(keys), group_by)
            named = (batches.c.metadata,) if keys or group_by else ()
            prompt = (batches.c.prompt,) if group_by else ()
            query = sa.select(*_DECIDED, *named, *prompt).select_from(DECIDED)
            after = -1
            while True:
                rows = connection.execute(
                    query.where(*wanted, decisions.c.batch > after).order_by(decisions.c.batch).limit(_PAGE)
                ).all()
                if not rows:
                    break
                after = rows[-1].batch
                answers = connection.execute(
                    sa.select(*_ANSWERED)
                    .join_from(decisions, responses, responses.c.batch == decisions.c.batch)
                    .where(decisions.c.gate == gate, decisions.c.batch.between(rows[0].batch, rows[-1].batch))
                    .order_by(responses.c.batch, responses.c.position)
                )
                columns.add(rows, {batch: list(of) for batch, of in groupby(answers, key=_BATCH)})
            versions = sorted(set(columns.versions))
            found = read_versions(connection, [(gate, version) for version in versions])
            policies = {one.version: one.active.policy for one in found if one.active is not None}
        return columns.past(policies, earlier=max(0, count - most))


@dataclass(eq=False)
class _PastColumns:
    """The columns of a past, as its pages come in."""

    gate: str
    severities: Severities
    keys: Sequence[str]
    group_by: str | None

    def __post_init__(self) -> None:
        self._of_batches: list[tuple[Any, ...]] = []
        self._of_responses: list[tuple[Any, ...]] = []
        self._sizes: list[int] = []
        self._cuts: dict[int, Cut] = {}
        self._named: dict[str, list[str | None]] = {key: [] for key in self.keys}
        self.versions: list[int] = []

    def add(self, rows: Sequence[Any], answers: dict[int, list[Any]]) -> None:
        """Take a page of decisions, and the responses of each."""
        for row in rows:
            if row.cut_state is not None:
                self._cuts[len(self._sizes)] = Cut(row.cut_state, row.cut_threshold)
            for name, segments in self._named.items():
                segments.append(None if row.metadata is None else segment_of(row.metadata, name))
            self.versions.append(row.policy_version)
            self._of_batches.append(
                (
                    row.batch,
                    row.batch_id,
                    row.decided_at,
                    row.sampled,
                    row.sampling_probability,
                    row.selected,
                    row.segment,
                    row.signals,
                    None if row.budget_count is None else Needed(row.budget_count, row.budget_groups),
                    row.burst,
                    None
                    if self.group_by is None or row.metadata is None
                    else burst_of(row.prompt, row.metadata, self.group_by),
                )
            )
            found = answers.get(row.batch, [])  # a batch may have none, and is held
            self._sizes.append(len(found))
            key = BatchKey(self.gate, row.batch_id, 1)
            blanks = [False] * len(found) if row.unit == "claim" else _blank(found)
            for one, blank in zip(found, blanks, strict=True):
                self._of_responses.append(
                    (
                        one.response_id,
                        one.score,
                        one.uniform,
                        blank,
                        one.action == "ship",
                        one.drawn,
                        self.severities.get(key, one.response_id) if one.drawn else None,
                    )
                )

    def past(self, policies: dict[int, Policy], *, earlier: int) -> Past:
        """All of it."""
        (
            numbers,
            batch_ids,
            decided_at,
            sampled,
            probability,
            selected,
            segments,
            rows,
            needed,
            bursts,
            names,
        ) = zip(*self._of_batches, strict=True) if self._of_batches else ((),) * 11
        ids, scores, uniforms, blank, shipped, drawn, severities = (
            zip(*self._of_responses, strict=True) if self._of_responses else ((),) * 7
        )
        return Past(
            gate=self.gate,
            numbers=np.array(numbers, dtype=np.int64),
            batch_ids=batch_ids,
            decided_at=decided_at,
            versions=np.array(self.versions, dtype=np.int64),
            policies=policies,
            sampled=np.array(sampled, dtype=np.bool_),
            probability=np.array(probability, dtype=np.float64),
            selected=selected,
            cuts=self._cuts,
            segments=segments,
            named=self._named,
            rows=rows,
            needed=needed,
            bursts=bursts,
            burst_names=names,
            starts=np.concatenate(([0], np.cumsum(self._sizes))).astype(np.int64),
            response_ids=ids,
            scores=np.array(scores, dtype=np.float64),  # NaN for None
            uniforms=np.array(uniforms, dtype=np.float64),
            blank=np.array(blank, dtype=np.bool_),
            shipped=np.array(shipped, dtype=np.bool_),
            drawn=np.array(drawn, dtype=np.bool_),
            severities=np.array(severities, dtype=np.float64),
            earlier=earlier,
        )


def _blank(answers: Sequence[Any]) -> list[bool]:
    """Say which answers the decision took for blank, as the audit of the record does."""
    texts = [one.text for one in answers]
    if any(text is None for text in texts):
        # A blank text scores 0; which of those was blank is unknown without texts.
        return [one.score == 0 and one.action != "ship" for one in answers]
    numbers = [one.raw_energy for one in answers]
    if None in numbers and any(one is not None for one in numbers):
        return [one is None for one in numbers]  # what is judged has nothing to see
    return list(WHOLE.blank(texts))
