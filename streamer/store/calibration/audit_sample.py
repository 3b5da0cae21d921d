"""The audit sample as calibration reads it: drawn batches, their scores as the gate cuts them, their severities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Self

import sqlalchemy as sa

from streamer.calibration.history import MOST, History
from streamer.calibration.shapes import rank_scores
from streamer.gates.batch_key import BatchKey
from streamer.gates.gate import mean_score
from streamer.gates.policy import burst_of, segment_of
from streamer.gates.settings import GateSettings
from streamer.recalibration.sampled import SampledGroup, SampledItem
from streamer.store.db.schema import (
    batches,
    calibration_inputs,
    carried_scores,
    carried_signals,
    decisions,
    gate_revisions,
    policies,
    responses,
)
from streamer.store.db.schema.decisions import SAMPLED
from streamer.store.db.schema.joins import (
    ANSWERED,
    DECIDED,
    POLICY_OF_DECISION,
    REVISION_OF_POLICY,
    same,
    signals_of,
)
from streamer.store.db.schema.types import Row
from streamer.store.labels.revisions import Severities, severities_given
from streamer.store.part import Part

if TYPE_CHECKING:
    from streamer.recalibration.run import SampleQuery

_BASE_DRAW = (SAMPLED, ~decisions.c.extra_draw)
"""What a raised audit rate alone has drawn came because labels looked bad: it is no sample of the prompts."""


def readable(query: SampleQuery, *, drawn: bool = True) -> tuple[sa.ColumnElement[bool], ...]:
    """What a decision must be for a run to read it; `decisions` joined with `batches`.

    `drawn` : by the gate's own audit. False: those that it did not draw.
    """
    settings = query.settings
    by_audit = _BASE_DRAW if drawn else (~sa.and_(*_BASE_DRAW),)
    conditions = (
        decisions.c.gate == query.gate,
        *by_audit,
        decisions.c.decided_at < query.before,
        decisions.c.unit == settings.unit,
        scored_by(settings),
        decisions.c.encoder == settings.encoder,
        batches.c.attempt == 1,
        *_of_revisions(query.gate, settings),
    )
    if query.since_version is None:
        return conditions
    # By policy and not by moment: workers date decisions, and their clocks may differ.
    return (*conditions, decisions.c.policy_version >= query.since_version)


def _of_revisions(gate: str, settings: GateSettings) -> tuple[sa.ColumnElement[bool], ...]:
    """A gate of one upstream learns from what it decided about that one: under other settings it took answers of any origin. Rows of
    one list of signals are all that a policy of that list can be compared with, and what was decided by one part of answers says
    nothing of another.
    """
    conditions: list[sa.ColumnElement[bool]] = [in_revisions(gate, judged=settings.judged)]
    if settings.upstream is not None:
        conditions.append(in_revisions(gate, upstream=settings.upstream))
    if (listed := settings.signal_list) is not None:
        later = sa.exists().where(
            carried_signals.c.list == listed.hash, carried_signals.c.batch == decisions.c.batch
        )
        conditions.append(in_revisions(gate, signals=settings.signals) | later)
    return tuple(conditions)


def in_revisions(gate: str, **wanted: object) -> sa.ColumnElement[bool]:
    """Whether a gate's decision was made under settings that have these values."""
    versions = (
        sa.select(policies.c.version)
        .join_from(policies, gate_revisions, REVISION_OF_POLICY)
        .where(policies.c.gate == gate, *(gate_revisions.c[name] == value for name, value in wanted.items()))
    )
    return decisions.c.policy_version.in_(versions)


def scored_by(settings: GateSettings) -> sa.ColumnElement[bool]:
    """Whether a decision has scores of the settings' scorer: it was made with them, or has got them later."""
    later = sa.exists().where(
        carried_scores.c.scorer == settings.scorer, carried_scores.c.batch == decisions.c.batch
    )
    return (decisions.c.scorer == settings.scorer) | later


def scores_of(settings: GateSettings) -> tuple[sa.ColumnElement[float], sa.FromClause]:
    """What the settings' scorer makes of a response, and what has to be joined to `responses` for it."""
    later = sa.select(carried_scores).where(carried_scores.c.scorer == settings.scorer).subquery("later")
    return sa.func.coalesce(later.c.score, responses.c.score), later


def joined(query: sa.Select[Any], later: sa.FromClause) -> sa.Select[Any]:
    """Join the scores that were made later."""
    return query.outerjoin(later, same(later, responses, "batch", "response_id"))


def base_probability(settings: sa.FromClause) -> sa.ColumnElement[float]:
    """The probability with which the gate's own audit draws a decision, also while the rate is raised.

    `settings` : the revision that it was decided under.
    """
    return sa.case(
        (decisions.c.audit_rate.is_(None), decisions.c.sampling_probability),
        else_=settings.c.audit_probability,
    )


class AuditSamples(Part):
    """What calibration reads of decisions and labels, at one moment."""

    _moment: sa.Connection | None = None

    @contextmanager
    def one_moment(self) -> Iterator[Self]:
        """Give the same where all that is read is of one moment."""
        with self._reading() as connection:
            other = copy(self)
            other._moment = connection
            yield other

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        if self._moment is not None:
            yield self._moment
            return
        with self._database.reading(snapshot=True) as connection:
            self._database.take_time(connection)
            yield connection

    def audit_sample(self, query: SampleQuery) -> list[SampledGroup]:
        """The audit sample that the query's settings can be calibrated on, in order of decision.

        Of each first attempt the drawn responses, with their severity of the settings' kind (None while there is no
        label), and what the settings' gate cuts: the response's score, for unit `batch` the batch's mean, for shape
        `rank` the rank within the batch. Where the settings have segments, batches whose segment is no longer known
        (their metadata are erased, and no policy had these segments) are passed over.
        """
        gate, settings = query.gate, query.settings
        whole = settings.unit == "batch" or settings.shape.of_ranks
        score, later = scores_of(settings)
        signals, carried = signals_of(None if settings.signal_list is None else settings.signal_list.hash)
        with self._reading() as connection:
            labels = self._read.table(connection, gate)
            given = severities_given(labels, gate, settings.severity_kind)
            asked = (
                sa.select(
                    *batches.c["id", "batch_id"],
                    base_probability(gate_revisions).label("probability"),
                    gate_revisions.c.audit_draws,
                    responses.c.response_id,
                    score.label("score"),
                    responses.c.drawn,
                    *given.c["labels", "severity"],
                    decisions.c.decided_at,
                    given.c.received_at,
                    signals,
                    *_segment_columns(settings),
                )
                .select_from(ANSWERED)
                .outerjoin(carried, carried.c.batch == decisions.c.batch)
                .join(policies, POLICY_OF_DECISION)
                .join(gate_revisions, REVISION_OF_POLICY)
                .outerjoin(given, _is_given(given, batches))
                .where(
                    *readable(query),
                    responses.c.score.is_not(None),
                    # The others are read where what the gate cuts is of the whole batch.
                    *(() if whole else (responses.c.drawn,)),
                )
                .order_by(decisions.c.decided_at, batches.c.id, responses.c.position)
            )
            several: Severities | None = None
            if query.severities == "mean":
                several = Severities.read(connection, labels, gate, settings.severity_kind, of_several=True)
            groups = []
            for _, found in groupby(connection.execute(joined(asked, later)), key=_BATCH):
                rows = list(found)
                group = _group(gate, rows, settings, several)
                known = settings.group_by is None or rows[0]._mapping["metadata"] is not None
                if group.items and known and (settings.segment_by is None or group.segment is not None):
                    groups.append(group)
            return groups

    def label_delays(
        self, gate: str, *, settings: GateSettings, before: datetime, most: int
    ) -> list[float | None]:
        """How late, in seconds, the labels of the newest `most` draws decided before a moment came, the oldest first.

        None where a drawn response that should have a label of the settings' kind has none. Whatever scored them.
        """
        drawn = (
            decisions.c.gate == gate,
            *_BASE_DRAW,
            batches.c.attempt == 1,
            decisions.c.decided_at < before,
        )
        newest = _newest(most, *drawn).subquery()
        with self._reading() as connection:
            given = severities_given(self._read.table(connection, gate), gate, settings.severity_kind)
            query = (
                sa.select(
                    *newest.c["batch", "decided_at"],
                    given.c.received_at,
                    responses.c.score,
                    given.c.severity,
                )
                .join_from(newest, responses, responses.c.batch == newest.c.batch)
                .outerjoin(given, _is_given(given, newest))
                .where(responses.c.drawn, responses.c.score.is_not(None))
                .order_by(newest.c.decided_at, newest.c.batch)
            )
            delays: list[float | None] = []
            for _, found in groupby(connection.execute(query), key=_BATCH):
                rows = list(found)
                floor = settings.asked_above((row[3], row[4]) for row in rows)
                came = [row[2] for row in rows if row[2] is not None or row[3] > floor]
                if came:
                    delays.append(None if None in came else (max(came) - rows[0][1]).total_seconds())
            return delays

    def not_read(self, gate: str, *, newest: int = 1000) -> tuple[int, int]:
        """How many newest decisions of a gate are looked at, and how many of them are held as not read."""
        own = sa.select(decisions.c.reason).where(decisions.c.gate == gate)
        reason = own.order_by(decisions.c.batch.desc()).limit(newest).subquery().c.reason
        query = sa.select(sa.func.count(reason), sa.func.count().filter(reason == "not_read"))
        with self._reading() as connection:
            looked, held = connection.execute(query).one()
        return looked, held

    def fewer_answers(self, gate: str, run: int, *, newest: int = 1000) -> tuple[int, int, int]:
        """Of the newest decisions of a gate: those on fewer answers than any batch had that calibrated in a run, those that scores
        decided at all, and that fewest number.
        """
        read = sa.select(calibration_inputs.c.batch).where(calibration_inputs.c.run == run)
        own = sa.select(decisions.c.batch).where(decisions.c.gate == gate)
        old, new = (
            sa.select(sa.func.count().label("answers"))
            .where(responses.c.batch.in_(some), responses.c.score.is_not(None))
            .group_by(responses.c.batch)
            .subquery()
            .c.answers
            for some in (read, own.order_by(decisions.c.batch.desc()).limit(newest))
        )
        with self._reading() as connection:
            fewest = connection.scalar(sa.select(sa.func.min(old))) or 0
            few, looked = connection.execute(
                sa.select(sa.func.count().filter(new < fewest), sa.func.count(new))
            ).one()
        return few, looked, fewest

    def undrawn_history(self, query: SampleQuery, *, most: int = MOST) -> History:
        """The cuts that the scores of the newest `most` first attempts fix which the gate's own audit did not draw."""
        scores = self.undrawn_scores(query, most=most)
        return History.of([score for one in scores for score in one], prompts=len(scores))

    def undrawn_scores(self, query: SampleQuery, *, most: int = MOST) -> list[list[float]]:
        """What the gate cuts of each of them, of unit `response` every score."""
        newest = _newest(most, *readable(query, drawn=False)).subquery()
        score, later = scores_of(query.settings)
        asked = (
            sa.select(newest.c.batch, score)
            .join_from(newest, responses, responses.c.batch == newest.c.batch)
            .where(responses.c.score.is_not(None))
            .order_by(newest.c.batch, responses.c.position)
        )
        unit = query.settings.unit
        found = []
        with self._reading() as connection:
            for _, rows in groupby(connection.execute(joined(asked, later)), key=_BATCH):
                scores = [score for _, score in rows]
                best = max if unit == "best" else mean_score
                found.append(scores if unit == "response" else [best(scores)])
        return found


def _newest(most: int, *conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Select the newest decisions that meet these."""
    query = sa.select(decisions.c.batch, decisions.c.decided_at, batches.c.batch_id).select_from(DECIDED)
    newest = query.where(*conditions).order_by(decisions.c.decided_at.desc(), decisions.c.batch.desc())
    return newest.limit(most)


def _is_given(given: sa.FromClause, batch: sa.FromClause) -> sa.ColumnElement[bool]:
    return same(given, batch, "batch_id") & (given.c.response_id == responses.c.response_id)


_BATCH = itemgetter(0)


def _group(
    gate: str, rows: Sequence[Any], settings: GateSettings, several: Severities | None
) -> SampledGroup:
    number, batch_id, probability, draws, *_ = rows[0]
    key = BatchKey(gate, batch_id, 1)
    scores = list(map(itemgetter(5), rows))
    if settings.unit == "batch":
        scores = [mean_score(scores)] * len(scores)
    elif settings.shape.of_ranks:
        scores = rank_scores(scores).tolist()
    items, labelled_at = [], []
    for row, score in zip(rows, scores, strict=True):
        _, _, _, _, response, _, drawn, labels, severity, _, came, *_ = row
        if not drawn:
            continue
        if several is not None and labels is not None and labels > 1:
            severity = several.get(key, response)
        items.append(SampledItem(response, score, severity))
        if came is not None:
            labelled_at.append(came)
    return SampledGroup(
        key=key,
        probability=probability,
        items=tuple(items),
        draws=draws,
        segment=None if settings.segment_by is None else _segment(rows[0]._mapping, settings.segment_by),
        burst=None if settings.group_by is None else _burst(rows[0]._mapping, settings.group_by),
        decided_at=rows[0][9],
        labelled_at=max(labelled_at, default=None),
        row=number,
        signals=rows[0][11],
    )


def _segment_columns(settings: GateSettings) -> tuple[sa.ColumnElement[Any], ...]:
    """Metadata are read only where segments or bursts are asked for: they may be long."""
    if settings.segment_by is None and settings.group_by is None:
        return ()
    prompt = () if settings.group_by is None else (batches.c.prompt,)
    return (batches.c.metadata, decisions.c.segment, gate_revisions.c.segment_by, *prompt)


def _burst(row: Row, key: str) -> str | None:
    return None if row["metadata"] is None else burst_of(row["prompt"], row["metadata"], key)


def _segment(row: Row, key: str) -> str | None:
    """The segment of a batch: from its metadata, or as it was recorded by a policy with the same segments."""
    if row["metadata"] is not None:
        return segment_of(row["metadata"], key)
    recorded: str | None = row["segment"]
    return recorded if row["segment_by"] == key else None
