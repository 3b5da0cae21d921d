"""What is at the desk, and what became of it, as rows say it."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from msgspec import UNSET

from streamer.errors import UsageError
from streamer.events.claims import RecordedClaims
from streamer.events.desk import SCHEMA, DeskV1, desk_id
from streamer.events.receipts import control_receipt
from streamer.gates.batch_key import BatchKey
from streamer.gates.policy import Closing
from streamer.gates.rule import Needed
from streamer.scoring.claims.answer import LeftOut, assembled, parts
from streamer.scoring.claims.sentences import Span
from streamer.scoring.judged import WHOLE, form
from streamer.scoring.unread_answers import Rule
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
from streamer.store.db.schema.joins import (
    ANSWERED,
    BATCH,
    DECIDED,
    POLICY_OF_DECISION,
    REVISION_OF_POLICY,
    is_batch,
    same,
)
from streamer.store.db.schema.types import Row, of_row

ROW: Final = (
    batches.c.id,
    *batches.c[BATCH],
    *decisions.c["action_id", "action_key", "action_headers"],
)
"""What whoever decides about a batch has to know of it."""

ITEMS: Final = DECIDED.join(desk_items, desk_items.c.batch == decisions.c.batch)
"""Batches that wait, with their decisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingBatch:
    """A batch that waits for a person, as a list shows it.

    `reason` is why the gate held it, as in its action; `prompt` how it begins, None once erased;
    `best_score` of its answers or claims, None where it was not scored; `responses` and `shipped`
    count its answers, or claims where it was scored, and those of them that ship; `needed` is the
    budget that it would have shipped with, None where its policy did not say; `closing` its gate's,
    None where nobody closed it.
    """

    key: BatchKey
    until: datetime
    decided_at: datetime
    reason: str
    prompt: str | None
    best_score: float | None
    unit: str
    responses: int
    shipped: int
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


class DeskClaim(NamedTuple):
    """A claim: `before` stands between the one before and it, `rests_on` are ids."""

    id: str
    span: Span
    before: str
    text: str
    score: float
    ships: bool
    rests_on: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeskClaims:
    """The response, as it came, of which a person may put back the claims that were held: `said`
    are its claims in order, `after` follows the last one, `others` are the other responses,
    without their reasoning."""

    id: str
    came: str
    said: tuple[DeskClaim, ...]
    after: str
    others: tuple[str, ...]
    left_out: LeftOut

    @classmethod
    def of(cls, claims: RecordedClaims, rows: Sequence[Row]) -> "DeskClaims":
        """Make it of the rows of its claims."""
        (name, came), *others = claims.responses.items()
        place, end = WHOLE.span(came) or (0, len(came))
        rests_on = claims.rests_on or [()] * len(rows)
        said = []
        for row, (first, last), on in zip(rows, claims.spans, rests_on, strict=True):
            made = DeskClaim(
                id=row["response_id"],
                span=(first, last),
                before=came[place:first],
                text=came[first:last],
                score=row["score"],
                ships=row["action"] == "ship",
                rests_on=tuple(rows[one]["response_id"] for one in on),
            )
            said.append(made)
            place = last
        rest = tuple(WHOLE.part(text) for _, text in others)
        return cls(name, came, tuple(said), came[place:end], rest, rows[0]["left_out"])

    @property
    def held(self) -> tuple[str, ...]:
        """The ids of its claims that were held."""
        return tuple(one.id for one in self.said if not one.ships)

    @property
    def shipped(self) -> str:
        """The text that the gate shipped; empty where it shipped none."""
        return self._text({one.id for one in self.said if one.ships})

    def with_claims(self, back: Sequence[str]) -> str:
        """Return the text with what the gate shipped and these claims.

        Raises `UsageError` where one of them is none that was held, or rests on one that stays held.
        """
        if not back or not set(self.held).issuperset(back) or len(set(back)) < len(back):
            raise UsageError("choose what to put back: claims that were held, each once")
        shown = {one.id for one in self.said if one.ships or one.id in back}
        for one in self.said:
            if one.id in shown and (missing := set(one.rests_on) - shown):
                raise UsageError(f"claim {one.id} rests on {min(missing)}: put that back as well, or neither")
        return self._text(shown)

    def _text(self, shown: Set[str]) -> str:
        ships = [one.id in shown for one in self.said]
        return assembled(self.came, parts(self.came, [one.span for one in self.said], ships, self.left_out))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskBatch:
    """A batch that is, or was, at the desk, in full.

    `until` is the deadline. `prompt` is None once erased. A gate of claims has `claims`, the
    response whose claims were decided, and no `answers`; other gates, and once erased, have no
    `claims`. `outcome` is None while it waits. `needed` is the budget that it would have shipped
    with, None where its policy did not say; `closing` its gate's, None where nobody closed it.
    """

    key: BatchKey
    until: datetime
    decided_at: datetime
    reason: str
    policy_version: int
    prompt: str | None
    answers: tuple[DeskAnswer, ...]
    claims: DeskClaims | None
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


def needed_of(row: Row) -> Needed | None:
    """The budget that a decision needed, from its row; None where its policy did not say."""
    return None if row["budget_count"] is None else Needed(row["budget_count"], row["budget_groups"])


def batch_row(connection: sa.Connection, key: BatchKey) -> Row | None:
    """Read `ROW` of a decided batch; None where there is none."""
    query = sa.select(*ROW).select_from(DECIDED).where(is_batch(key))
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
        DeskV1,
        row,
        schema=SCHEMA,
        desk_id=row["id"],
        selected=row["response_id"],
        claims=row["claims"] or UNSET,
        decided_at=row["at"],
    )


def offered(connection: sa.Connection, batch: int) -> tuple[tuple[DeskAnswer, ...], DeskClaims | None]:
    """Read what of a batch can be released: its answers in order, or claims of one."""
    query = (
        sa.select(
            *responses.c["response_id", "text", "score", "not_read", "action"],
            *gate_revisions.c["judged", "left_out"],
            sa.case((decisions.c.unit == "claim", batches.c.metadata), else_=sa.null()).label("claims"),
        )
        .select_from(ANSWERED)
        .join(policies, POLICY_OF_DECISION)
        .join(gate_revisions, REVISION_OF_POLICY)
        .where(responses.c.batch == batch)
        .order_by(responses.c.position)
    )
    rows = connection.execute(query).mappings().all()
    if claims := RecordedClaims.of(rows[0]["claims"] if rows else None):
        return (), DeskClaims.of(claims, rows)
    found = []
    for row in rows:
        came = row["text"]
        text = None if came is None else form(row["judged"]).ships(came)
        found.append(
            of_row(DeskAnswer, row, id=row["response_id"], text=text, came=None if text == came else came)
        )
    return tuple(found), None
