"""What is at the desk, and what became of it, as rows say it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from streamer.events.desk import SCHEMA, DeskV1, desk_id
from streamer.events.receipts import control_receipt
from streamer.gates.batch_key import BatchKey
from streamer.gates.rule import Needed
from streamer.scoring.judged import form
from streamer.scoring.reading import Rule
from streamer.store.audit import control
from streamer.store.db.schema import (
    batches,
    control_log,
    decisions,
    desk_items,
    desk_outcomes,
    desk_texts,
    gate_revisions,
    policies,
    responses,
)
from streamer.store.db.schema.joins import BATCH, POLICY_OF_DECISION, REVISION_OF_POLICY, is_batch, same
from streamer.store.db.schema.types import Row, of_row

ROW: Final = (
    batches.c.id,
    *batches.c[BATCH],
    *decisions.c["action_id", "action_key", "action_headers"],
)
"""What whoever decides about a batch has to know of it."""

ITEMS: Final = desk_items.join(batches, batches.c.id == desk_items.c.batch).join(
    decisions, decisions.c.batch == desk_items.c.batch
)
"""Batches that wait, with their decisions."""


class Closing(NamedTuple):
    """By which policy somebody, or an alarm, closed a gate that is closed now: who, when and why."""

    version: int
    by: str
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingBatch:
    """A batch that waits for a person, as a list shows it.

    Attributes
    ----------
    reason : why the gate held it, as in its action.
    prompt : how it begins; None once erased.
    best_score : of its answers; None where it was not scored.
    needed : the budget that it would have shipped with; None where its policy did not say.
    closing : of its gate; None: it is not closed by anybody.
    """

    key: BatchKey
    until: datetime
    decided_at: datetime
    reason: str
    prompt: str | None
    best_score: float | None
    responses: int
    needed: Needed | None = None
    closing: Closing | None = None


class DeskAnswer(NamedTuple):
    """One of its answers: `text` as it would be released, `came` as it came where that is another; both are None once erased. `not_read` is
    None where the encoder read it, or was not asked.
    """

    id: str
    text: str | None
    score: float | None
    not_read: Rule | None = None
    came: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskBatch:
    """A batch that is, or was, at the desk, in full.

    Attributes
    ----------
    until : the deadline.
    prompt : None once erased.
    outcome : None while it waits.
    needed : the budget that it would have shipped with; None where its policy did not say.
    closing : of its gate; None: it is not closed by anybody.
    """

    key: BatchKey
    until: datetime
    decided_at: datetime
    reason: str
    policy_version: int
    prompt: str | None
    answers: tuple[DeskAnswer, ...]
    outcome: DeskV1 | None
    needed: Needed | None = None
    closing: Closing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskState:
    """Whether a decided batch waits for a person; `outcome` is None while it does."""

    until: datetime
    outcome: DeskV1 | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskQueue:
    """What waits at one gate: how many, and when the oldest was held."""

    waiting: int
    oldest: datetime


def closing_of(connection: sa.Connection, gate: str) -> Closing | None:
    """Read by which policy a gate is closed; None where it is not, a calibration found that, or it never was open.

    Each change of settings has a revision of its own: a gate with as many policies has only been set up so far.
    """
    own = policies.c
    of_gate = own.gate == gate
    query = sa.select(*own["version", "created_by", "valid_from", "reason", "state", "calibration_run"])
    newest = connection.execute(query.where(of_gate).order_by(own.version.desc()).limit(1)).one()
    there, revisions = connection.execute(
        sa.select(sa.func.count(), sa.func.count(own.gate_revision.distinct())).where(of_gate)
    ).one()
    if newest.state != "closed" or newest.calibration_run is not None or there == revisions:
        return None
    return Closing(newest.version, newest.created_by, newest.valid_from, newest.reason)


def needed_of(row: Row) -> Needed | None:
    """The budget that a decision needed, from its row; None where its policy did not say."""
    return None if row["budget_count"] is None else Needed(row["budget_count"], row["budget_groups"])


def batch_row(connection: sa.Connection, key: BatchKey) -> Row | None:
    """Read `ROW` of a decided batch; None where there is none."""
    query = sa.select(*ROW).join(decisions, decisions.c.batch == batches.c.id).where(is_batch(key))
    return connection.execute(query).mappings().one_or_none()


def receipts_of(connection: sa.Connection, events: Sequence[DeskV1]) -> dict[str, str]:
    """The receipts of outcomes, by their ids: leaves of the control log."""
    subjects = {control.subject_of(desk_outcomes, {"id": one.desk_id}): one.desk_id for one in events}
    query = sa.select(control_log.c.subject, *control_log.c["leaf_index", "leaf_hash", "root"]).where(
        control_log.c.kind == desk_outcomes.name, control_log.c.subject.in_(list(subjects))
    )
    return {subjects[subject]: control_receipt(*place) for subject, *place in connection.execute(query)}


def state_of(connection: sa.Connection, key: BatchKey) -> DeskState | None:
    """Read whether a batch waits, or what became of it; None for one that never came to the desk."""
    query = (
        sa.select(desk_items.c.until).join(batches, batches.c.id == desk_items.c.batch).where(is_batch(key))
    )
    until = connection.execute(query).scalar_one_or_none()
    if until is not None:
        return DeskState(until=until, outcome=None)
    outcome = outcome_of(connection, key)
    return None if outcome is None else DeskState(until=outcome.until, outcome=outcome)


def outcome_query() -> sa.Select[Any]:
    """What `event_of` reads, of every outcome."""
    return (
        sa.select(desk_outcomes, desk_texts.c.text, decisions.c.action_id)
        .select_from(desk_outcomes)
        .join(batches, same(batches, desk_outcomes, *BATCH))
        .join(decisions, decisions.c.batch == batches.c.id)
        .join(desk_texts, desk_texts.c.outcome == desk_outcomes.c.id, isouter=True)
    )


def outcome_of(connection: sa.Connection, key: BatchKey) -> DeskV1 | None:
    """Read what became of a batch; None while it waits."""
    query = outcome_query().where(desk_outcomes.c.id == desk_id(key))
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else event_of(row)


def event_of(row: Row) -> DeskV1:
    """The event of an outcome, from its row."""
    return of_row(
        DeskV1, row, schema=SCHEMA, desk_id=row["id"], selected=row["response_id"], decided_at=row["at"]
    )


def answers_of(connection: sa.Connection, batch: int) -> tuple[DeskAnswer, ...]:
    """Read a batch's answers, in order."""
    query = (
        sa.select(*responses.c["response_id", "text", "score", "not_read"], gate_revisions.c.judged)
        .join(decisions, decisions.c.batch == responses.c.batch)
        .join(policies, POLICY_OF_DECISION)
        .join(gate_revisions, REVISION_OF_POLICY)
    )
    rows = connection.execute(query.where(responses.c.batch == batch).order_by(responses.c.position))
    found = []
    for name, came, score, not_read, judged in map(tuple, rows):
        text = None if came is None else form(judged).ships(came)
        found.append(DeskAnswer(name, text, score, not_read, None if text == came else came))
    return tuple(found)
