"""Severities: every revision is kept; the latest of each labeller counts, and several labellers are averaged."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean
from types import MappingProxyType
from typing import Any, NamedTuple

import sqlalchemy as sa

from streamer.errors import Unavailable, UsageError
from streamer.events.claims import RecordedClaims
from streamer.gates.batch_key import BatchKey
from streamer.journal import LabelRevision
from streamer.labels.signing import NO_LABEL_KEYS, LabelKeys
from streamer.store.audit import control
from streamer.store.db import bulk_insert
from streamer.store.db.schema import (
    batches,
    decisions,
    gate_revisions,
    label_revisions,
    label_signatures,
    responses,
)
from streamer.store.db.schema.decisions import EXTRA_DRAW, SAMPLED
from streamer.store.db.schema.joins import ANSWERED, BATCH, JUDGED, RESPONSE, is_label, key_of, newest, same
from streamer.store.db.schema.types import of_row
from streamer.store.db.schema.views import latest
from streamer.store.labels.read_labels import UnreadLabels
from streamer.store.log.resolve_outcomes import StoredLabel, add_labels, known_gates
from streamer.store.part import Part
from streamer.store.risk.audit_rates import held_early, newest_shipped, raised_gates

AT_ONCE = 2_000
"""Labels that one transaction stores: others wait for it, for the head of the control log or, with SQLite, for the file."""

_PAUSE_SECONDS = 0.12
"""Between two of them with SQLite, which looks this often at most whether the file is free."""


class Added(NamedTuple):
    """The outcome of labels that were given: new revisions, identical ones that were there already, new signatures; and
    those of all of them that their gate does not read."""

    added: int
    repeated: int
    signed: int = 0
    unread: Mapping[str, UnreadLabels] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedResponse:
    """A drawn response that waits for a severity of its gate's kind; `place` orders the queue.

    `text` is None, and `prompt` empty, where the gate keeps no texts. `judged` is what of it is judged. `urgent`: its gate's audit rate is raised, because the
    risk alarm gathers evidence. `answer` : the response of which it is a claim, if it is one.
    """

    key: BatchKey
    response_id: str
    kind: str
    decided_at: datetime
    prompt: str
    text: str | None
    references: tuple[str, ...] | None
    place: tuple[int, datetime, int, float, int]
    judged: str
    urgent: bool = False
    answer: str | None = None


class DrawnResponse(NamedTuple):
    """A response that was drawn for a label, and the present severity kind of its gate."""

    key: BatchKey
    response_id: str
    kind: str


class Severities:
    """The present severity of each labelled response of a gate, for one kind of label: the mean of what
    labellers said last (`streamer.store.db.schema.views.latest`)."""

    def __init__(self, values: dict[tuple[BatchKey, str], float]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: BatchKey, response_id: str) -> float | None:
        """Severity in [0, 1], or None when nobody has labelled this response."""
        return self._values.get((key, response_id))

    @classmethod
    def read(
        cls,
        connection: sa.Connection,
        labels: sa.FromClause,
        gate: str,
        kind: str,
        *,
        of_several: bool = False,
    ) -> Severities:
        """Read the present severities of one gate and kind; or only of the responses that have more than one label.

        `labels` : what is read (`streamer.store.labels.read_labels`).
        """
        wanted = [labels.c.gate == gate, labels.c.kind == kind]
        if of_several:
            response = labels.c[RESPONSE]
            more = sa.select(*response).where(*wanted).group_by(*response).having(sa.func.count() > 1)
            wanted.append(sa.tuple_(*response).in_(more))
        found = latest(labels, *wanted)
        rows = connection.execute(sa.select(*found.c[(*RESPONSE, "severity")]))
        return cls(means((BatchKey(*key), response, severity) for *key, response, severity in rows))


def means(said: Iterable[Sequence[Any]]) -> dict[tuple[Any, ...], float]:
    """Average the last part of rows by the parts before it; exact before its one rounding, so that their order is no matter."""
    given = defaultdict[tuple[Any, ...], list[float]](list)
    for *of, severity in said:
        given[tuple(of)].append(severity)
    return {of: fmean(severities) for of, severities in given.items()}


def severities_given(labels: sa.FromClause, gate: str, kind: str) -> sa.Subquery:
    """The labels that are read of each response of a gate's first attempts, by ``batch_id`` and ``response_id``.

    ``labels`` counts its revisions, by whoever; ``severity`` is the highest of them. Where there is only one that is the
    present severity as well; of several `Severities` knows the mean. ``received_at`` is when the first of them came.
    """
    return (
        sa.select(
            *labels.c["batch_id", "response_id"],
            sa.func.count().label("labels"),
            sa.func.max(labels.c.severity).label("severity"),
            sa.func.min(labels.c.received_at).label("received_at"),
        )
        .where(labels.c.gate == gate, labels.c.kind == kind, labels.c.attempt == 1)
        .group_by(labels.c.batch_id, labels.c.response_id)
        .subquery()
    )


class Labels(Part):
    """The labels of all gates."""

    def add(
        self,
        revisions: Sequence[LabelRevision],
        *,
        source: str = "file",
        now: datetime | None = None,
        sign: bool = False,
    ) -> Added:
        """Store severities, `AT_ONCE` in a transaction. An identical one that is there already is
        not stored again.

        With `sign` each is signed with its labeller's private key. Raises `UsageError` when a gate
        does not exist, or there is no private key of a labeller: nothing is stored then;
        `Unavailable` between two transactions, too: it says how many labels are stored.
        """
        if sign and (strangers := sorted({one.labeller for one in revisions} - self._read.keys.signs_for)):
            raise UsageError(
                f"there is no private key of {', '.join(map(repr, strangers))} here (STREAMER_LABELS_PRIVATE_KEYS_FILE;"
                " `streamer label keygen` makes one); no label was stored"
            )
        keys = self._read.keys if sign else NO_LABEL_KEYS
        names = {label.key.gate for label in revisions}
        with self._database.reading() as connection:
            if unknown := sorted(names - known_gates(connection, names)):
                raise UsageError(f"there is no gate {', '.join(map(repr, unknown))}; no label was stored")
        stored: list[StoredLabel] = []
        for start in range(0, len(revisions), AT_ONCE):
            if start and self._database.sqlite:
                time.sleep(_PAUSE_SECONDS)
            try:
                stored += self._database.writing(
                    store_labels,
                    revisions[start : start + AT_ONCE],
                    keys=keys,
                    source=source,
                    now=now or self._clock(),
                )
            except Unavailable as error:
                raise Unavailable(
                    f"{error}. {start} of {len(revisions)} labels are stored; to store the others, do the same again"
                ) from error
        added = sum(one.is_new for one in stored)
        labels = [one.label for one in stored]
        unread = self._database.read(self._read.unread_among, labels)
        return Added(added, len(stored) - added, sum(one.is_newly_signed for one in stored), unread)

    def unrecorded(self, revisions: Sequence[LabelRevision]) -> list[LabelRevision]:
        """Those whose response is not in the record: it may come later, was given out, or the id is wrong."""
        named = [*batches.c[BATCH], responses.c.response_id]
        query = sa.select(*named).join_from(batches, responses, responses.c.batch == batches.c.id)
        keys = [(*one.key, one.response_id) for one in revisions]
        with self._database.reading() as connection:
            known: set[Any] = {
                tuple(row.values()) for row in bulk_insert.look_up(connection, query, named, keys)
            }
        return [one for one, key in zip(revisions, keys, strict=True) if key not in known]

    def urgent(self, now: datetime) -> frozenset[str]:
        """The gates whose audit rate is raised: the risk alarm waits for their labels."""
        with self._database.reading() as connection:
            return frozenset(connection.execute(raised_gates(now)).scalars())

    def queue(
        self,
        gate: str | None = None,
        *,
        limit: int = 100,
        after: QueuedResponse | None = None,
        urgent: Collection[str] = (),
    ) -> list[QueuedResponse]:
        """Drawn responses without a severity of their gate's present kind, the oldest decision first.

        Those of the gates `urgent` come before those of others. Within a gate the order stays that of decisions, drawn by a
        raised rate or not: else whether a label comes in time would depend on what is drawn later, or on its answer. Claims
        are asked for in the order of their answer, or where the first wrong one decides from the highest score down.

        What scores at or below the gate's label floor is not asked for, nor what no reader would read: see
        `unlabelled`. `after` continues after that one, whatever was labelled or decided meanwhile.
        """
        rank = sa.case((decisions.c.gate.in_(sorted(urgent)), 0), else_=1) if urgent else sa.literal(1)
        place = (rank, decisions.c.decided_at, batches.c.id, FROM_THE_TOP, responses.c.position)
        conditions = []
        if after is not None:
            reached = (
                sa.literal(value, column.type) for value, column in zip(after.place, place, strict=True)
            )
            conditions.append(sa.tuple_(*place) > sa.tuple_(*reached))
        if gate is not None:
            conditions.append(decisions.c.gate == gate)
        with self._labels_of(gate) as (connection, labels):
            of_claims = sa.case((decisions.c.unit == "claim", batches.c.metadata), else_=sa.null())
            query = unlabelled(
                labels,
                *batches.c["gate", "batch_id", "attempt"],
                responses.c.response_id,
                gate_revisions.c.severity_kind,
                decisions.c.decided_at,
                batches.c.prompt,
                responses.c.text,
                *batches.c["references", "id"],
                responses.c.position,
                JUDGED,
                rank.label("rank"),
                FROM_THE_TOP.label("down"),
                of_claims.label("claims"),
                held=held_early(connection),
            )
            query = query.where(*conditions).order_by(*place).limit(limit)
            found = connection.execute(query).mappings().all()
        return [
            of_row(
                QueuedResponse,
                row,
                key=key_of(row),
                kind=row["severity_kind"],
                references=None if row["references"] is None else tuple(row["references"]),
                place=(row["rank"], row["decided_at"], row["id"], row["down"], row["position"]),
                urgent=row["gate"] in urgent,
                answer=claims.answer if (claims := RecordedClaims.of(row["claims"])) else None,
            )
            for row in found
        ]

    def drawn(self, gate: str | None = None) -> list[DrawnResponse]:
        """Every response that was drawn for a label, with a severity or without, of one gate or all; in no order."""
        present = newest(gate_revisions.c.revision).subquery()
        query = (
            sa.select(
                *batches.c["gate", "batch_id", "attempt"],
                responses.c.response_id,
                gate_revisions.c.severity_kind,
            )
            .select_from(ANSWERED)
            .join(present, present.c.gate == decisions.c.gate)
            .join(gate_revisions, same(gate_revisions, present, "gate", "revision"))
            .where(SAMPLED, responses.c.drawn)
        )
        if gate is not None:
            query = query.where(decisions.c.gate == gate)
        return [
            DrawnResponse(BatchKey(row.gate, row.batch_id, row.attempt), row.response_id, row.severity_kind)
            for row in self._database.rows(query)
        ]

    def pending(self) -> dict[str, int]:
        """How many drawn responses wait for a severity, by gate; every gate is there."""
        with self._labels_of(None) as (connection, labels):
            waiting = unlabelled(
                labels,
                decisions.c.gate,
                sa.func.count().label("waiting"),
                held=held_early(connection),
            ).group_by(decisions.c.gate)
            names = connection.execute(sa.select(gate_revisions.c.gate).distinct()).scalars()
            counts = dict.fromkeys(sorted(names), 0)
            return counts | {row.gate: row.waiting for row in connection.execute(waiting)}

    def counts(self) -> dict[tuple[str, str], int]:
        """How many revisions are stored, by gate and kind."""
        return self._database.counts(*label_revisions.c["gate", "kind"])

    def severities(self, gate: str, kind: str) -> Severities:
        """The present severities of one gate and kind."""
        with self._labels_of(gate) as (connection, labels):
            return Severities.read(connection, labels, gate, kind)

    def refusals(self, labeller: str, gates: Sequence[str]) -> dict[str, str]:
        """Say of which of these gates labels that this labeller gives here would not be read, and why."""
        return self._database.read(self._read.refusals, labeller, gates)

    def unread(self, gate: str | None = None) -> dict[str, UnreadLabels]:
        """Labels that are recorded and not read, by gate; gates without any are left out."""
        return self._database.read_at_once(self._read.unread, gate)


def store_labels(
    connection: sa.Connection, labels: Sequence[LabelRevision], *, keys: LabelKeys, source: str, now: datetime
) -> list[StoredLabel]:
    """Store and seal labels that did not come by the log, signed where the labeller's private key is here.

    Returns, for each, the rows that stand.
    """
    record_id = control.head(connection).record_id
    signed = [keys.sign(label, record_id=record_id) for label in labels]
    stored = add_labels(connection, signed, source=source, now=now)
    control.append(connection, label_revisions, [(one.label["id"],) for one in stored if one.is_new], now=now)
    control.append(
        connection,
        label_signatures,
        [(one.signature["id"],) for one in stored if one.signature is not None and one.is_newly_signed],
        now=now,
    )
    return stored


def unlabelled(
    labels: sa.FromClause, *columns: sa.ColumnElement[Any], held: Sequence[str] = ()
) -> sa.Select[Any]:
    """Select from the drawn responses that wait for a severity of their gate's present kind: none in `labels` is theirs.

    Calibration reads first attempts that the gate's own audit drew, and the risk in service what shipped: an answer that was held
    is asked for by nobody in a later attempt, or where only a raised rate drew it, for its loss is 0 whatever its severity. `decisions`, `batches`, `responses` and `gate_revisions`
    (the newest of the gate) are joined. Where the first wrong claim decides what an answer loses, no other is asked for. Of the gates `held` by an early warning all of the newest answers that shipped are asked
    for, drawn or not.
    """
    last = (
        sa.select(sa.func.max(gate_revisions.c.revision))
        .where(gate_revisions.c.gate == decisions.c.gate)
        .correlate(decisions)
        .scalar_subquery()
    )
    labelled = sa.exists().where(is_label(labels, batches, gate_revisions.c.severity_kind))
    query: sa.Select[Any] = sa.select(*columns)
    return (
        query.select_from(ANSWERED)
        .join(
            gate_revisions, (gate_revisions.c.gate == decisions.c.gate) & (gate_revisions.c.revision == last)
        )
        .where(
            _asked(held),
            batches.c.erased_at.is_(None),
            gate_revisions.c.label_floor.is_(None) | (responses.c.score > gate_revisions.c.label_floor),
            ~labelled,
            ~(_UNTIL_WRONG & wrong_above(labels, batches, gate_revisions.c.severity_kind)),
        )
    )


_UNTIL_WRONG = (decisions.c.unit == "claim") & (gate_revisions.c.loss == "any")
"""As `GateSettings.until_wrong`, of the newest settings."""
FROM_THE_TOP = sa.case((_UNTIL_WRONG, -responses.c.score), else_=0.0)
"""The order in which the claims of an answer are asked for, before that of its text."""


def wrong_above(
    labels: sa.FromClause, batch: sa.FromClause, kind: str | sa.ColumnElement[str]
) -> sa.ColumnElement[bool]:
    """Whether a drawn response of the batch that scores as much has a severity of 1.

    The last one by each labeller is 1.

    `batch` has the columns that name it, and is joined with `responses`.
    """
    wrong, said, later = responses.alias(), labels.alias(), labels.alias()

    of_it = is_label(said, batch, kind, wrong)
    replaced = sa.exists().where(
        is_label(later, batch, kind, wrong),
        later.c.labeller == said.c.labeller,
        sa.tuple_(later.c.effective_at, later.c.id) > sa.tuple_(said.c.effective_at, said.c.id),
    )
    better = sa.exists().where(of_it, said.c.severity < 1, ~replaced.correlate_except(later))
    worst = sa.exists().where(of_it, said.c.severity == 1)
    return (
        sa.exists()
        .where(
            wrong.c.batch == responses.c.batch,
            wrong.c.drawn,
            wrong.c.score >= responses.c.score,
            worst.correlate_except(said),
            ~better.correlate_except(said),
        )
        .correlate_except(wrong)
    )


def _asked(held: Sequence[str]) -> sa.ColumnElement[bool]:
    ships = responses.c.action == "ship"
    drawn = SAMPLED & responses.c.drawn & (((batches.c.attempt == 1) & ~EXTRA_DRAW) | ships)
    if not held:  # the index of what was drawn serves then
        return drawn
    from streamer.risk.states.early import URGENT  # workers, which load this module, watch no risk

    late = decisions.c.batch.in_(newest_shipped(decisions.c.gate, URGENT).correlate(decisions))
    return drawn | (decisions.c.gate.in_(held) & (batches.c.attempt == 1) & ships & late)
