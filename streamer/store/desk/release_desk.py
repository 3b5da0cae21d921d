"""The desk: what waits for a person, and what becomes of it, exactly once.

A batch waits in a row of `desk_items`, which the transaction of its decision writes. Whoever decides about it deletes that row
and writes the outcome, its seal in the control log, its text and its message, all in one transaction: of two who try at once
one waits for the other, and then finds the outcome instead of the row.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.events.desk import MOST_REMARK_CHARACTERS, SCHEMA, DeskV1, desk_id
from streamer.events.receipts import with_receipt
from streamer.gates import free_text
from streamer.gates.batch_key import BatchKey
from streamer.gates.policy import Closing
from streamer.gates.settings import GateSettings
from streamer.lazy import LazyLogger
from streamer.scoring.blank import is_blank
from streamer.signing.canonical_json import canonical_json
from streamer.store.audit import control
from streamer.store.db.leases import ProcessLease
from streamer.store.db.schema import (
    batches,
    decisions,
    desk_items,
    desk_outcomes,
    desk_texts,
    responses,
)
from streamer.store.db.schema.joins import BATCH, DECIDED, is_batch, key_of
from streamer.store.db.schema.types import HASH_BYTES, Row, of_row, row_of
from streamer.store.desk.rows import (
    ITEMS,
    ROW,
    DeskAnswer,
    DeskBatch,
    DeskClaims,
    DeskQueue,
    DeskState,
    WaitingBatch,
    batch_row,
    event_of,
    needed_of,
    offered,
    outcome_of,
    outcome_query,
    receipts_of,
    state_of,
)
from streamer.store.log.outbox import enqueue
from streamer.store.part import Part
from streamer.store.policies.fence import newest_version
from streamer.store.policies.policy_rows import closing_of
from streamer.wording.numbers import when

if TYPE_CHECKING:
    from streamer.risk.rounds.report import DeskReport

log = LazyLogger(__name__)

MOST_AT_ONCE: Final = 100
"""Batches that one transaction rejects for their deadline."""

Offer = tuple[tuple[DeskAnswer, ...], DeskClaims | None]
"""What of a batch can be released."""

_EXCERPT = 400
_LATELY = 20


class NotAtDesk(UsageError):
    """No such batch waits for a person, or ever did."""


class AlreadyDecided(UsageError):
    """Somebody else, or the deadline, was first; `outcome` stands."""

    def __init__(self, outcome: DeskV1) -> None:
        who = "the deadline had passed" if outcome.by is None else f"{outcome.by} {outcome.action} it before"
        super().__init__(f"{who}, at {when(outcome.decided_at)}; that stands")
        self.outcome = outcome


class GateIsClosed(UsageError):
    """The gate was closed, and whoever releases has not said that they know it."""

    def __init__(self, gate: str, closing: Closing) -> None:
        super().__init__(
            f"{closing.by} closed gate {gate}, {when(closing.at)} (policy {closing.version}): {closing.reason}. Nothing was released;"
            " to release an answer all the same, say that you know it"
        )
        self.closing = closing


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Show people one answer. They see `text` in place of it; None, or the same text: the answer
    as it is. `claims`: of a gate of claims, those that are put back, at least one; of others
    none. `knowing`: the policy by which the gate is closed, as far as whoever releases knows
    that."""

    response_id: str
    text: str | None = None
    claims: tuple[str, ...] = ()
    knowing: int | None = None


class Reject(NamedTuple):
    """Go on holding the batch."""


class ReleaseDesk(Part):
    """The desk of every gate. Calls block; from any thread."""

    # -- looking --------------------------------------------------------------------------------------------

    def waiting(self, *, limit: int = 200) -> list[WaitingBatch]:
        """What waits: what would have shipped with the smallest budget first, then by deadline."""
        share = decisions.c.budget_count / (decisions.c.budget_groups + 1.0)
        own = responses.c.batch == desk_items.c.batch
        query = (
            sa.select(
                *batches.c[BATCH],
                desk_items.c.until,
                *decisions.c["decided_at", "reason", "unit", "budget_count", "budget_groups"],
                sa.func.substr(batches.c.prompt, 1, _EXCERPT).label("prompt"),
                sa.select(sa.func.max(responses.c.score)).where(own).scalar_subquery().label("best_score"),
                sa.select(sa.func.count()).where(own).scalar_subquery().label("count"),
                sa.select(sa.func.count())
                .where(own, responses.c.action == "ship")
                .scalar_subquery()
                .label("shipped"),
            )
            .select_from(ITEMS)
            .order_by(share.is_(None), share, desk_items.c.until, desk_items.c.batch)
            .limit(limit)
        )
        with self._database.reading() as connection:
            rows = connection.execute(query).mappings().all()
            closings = {gate: closing_of(connection, gate) for gate in {row["gate"] for row in rows}}
            return [
                of_row(
                    WaitingBatch,
                    row,
                    key=key_of(row),
                    responses=row["count"],
                    needed=needed_of(row),
                    closing=closings[row["gate"]],
                )
                for row in rows
            ]

    def queues(self) -> dict[str, DeskQueue]:
        """What waits, by gate; gates at which nothing waits are not in it."""
        query = (
            sa.select(desk_items.c.gate, sa.func.count(), sa.func.min(decisions.c.decided_at))
            .join(decisions, decisions.c.batch == desk_items.c.batch)
            .group_by(desk_items.c.gate)
        )
        return {
            gate: DeskQueue(waiting=count, oldest=oldest)
            for gate, count, oldest in self._database.rows(query)
        }

    def counts(self) -> dict[tuple[str, str], int]:
        """How many were ever `released`, `rejected` by a person or `expired`, by gate and word."""
        found = self._database.counts(*desk_outcomes.c["gate", "action", "reason"])
        return {
            (gate, "expired" if reason == "deadline_passed" else action): count
            for (gate, action, reason), count in found.items()
        }

    def batch(self, key: BatchKey) -> DeskBatch | None:
        """A batch that is or was at the desk; None for any other."""
        with self._database.reading(snapshot=True) as connection:
            state = state_of(connection, key)
            if state is None:
                return None
            query = (
                sa.select(
                    *batches.c["id", "prompt"],
                    *decisions.c["decided_at", "reason", "policy_version"],
                    *decisions.c["budget_count", "budget_groups"],
                )
                .select_from(DECIDED)
                .where(is_batch(key))
            )
            row = connection.execute(query).mappings().one()
            answers, claims = offered(connection, row["id"])
            return of_row(
                DeskBatch,
                row,
                key=key,
                until=state.until,
                outcome=state.outcome,
                answers=answers,
                claims=claims,
                needed=needed_of(row),
                closing=closing_of(connection, key.gate),
            )

    def state(self, key: BatchKey) -> DeskState | None:
        """Whether a batch waits, or what became of it; None for one that never came to the desk."""
        return self._database.read_at_once(state_of, key)

    def outcomes(self, keys: Sequence[BatchKey]) -> dict[BatchKey, DeskV1]:
        """What became of those of these batches that no longer wait."""
        if not keys:
            return {}
        query = outcome_query().where(desk_outcomes.c.id.in_([desk_id(key) for key in keys]))
        found = [event_of(row) for row in self._database.mappings(query)]
        return {BatchKey(one.gate, one.batch_id, one.attempt): one for one in found}

    def receipt(self, outcome: DeskV1) -> str | None:
        """The receipt of an outcome, which is also in its message's headers."""
        with self._database.reading() as connection:
            return receipts_of(connection, [outcome]).get(outcome.desk_id)

    def lately(self) -> list[DeskV1]:
        """What was decided last, the newest first; without texts."""
        query = outcome_query().order_by(desk_outcomes.c.at.desc()).limit(_LATELY)
        return [event_of(dict(row) | {"text": None}) for row in self._database.mappings(query)]

    def in_period(self, gate: str, settings: GateSettings, *, now: datetime) -> DeskReport | None:
        """`report` of the gate's budget period; None where nothing was decided in it and the gate has no desk."""
        since = now - timedelta(days=settings.budget_period_days)
        found = replace(self.report(gate, kind=settings.severity_kind, since=since), unit=settings.unit)
        return found if found.total or settings.desk_deadline_seconds is not None else None

    def report(self, gate: str, *, kind: str, since: datetime) -> DeskReport:
        """What people decided about what the gate held, by outcomes since a moment, and the labels of `kind` of what they released."""
        from streamer.store.desk.report import read_report  # which workers, who keep the desk, do not load

        with self._labels_of(gate) as (connection, labels):
            return read_report(connection, labels, gate, kind=kind, since=since)

    # -- deciding -------------------------------------------------------------------------------------------

    def decide(self, key: BatchKey, act: Release | Reject, *, by: str, remark: str = "") -> DeskV1:
        """Release or reject a batch that waits, and return the outcome, which is final. Safe to
        repeat.

        Raises `NotAtDesk` when it never came to the desk; `AlreadyDecided` when somebody else, or
        the deadline, decided first, or this person something else (nothing is changed then, but for
        a deadline that nobody had noticed, which goes on record); `GateIsClosed` when the gate is
        closed by another policy than the release knows of, and nothing is changed; `UsageError`
        when the batch has no such answer, its texts are erased, or the remark is too long.
        """
        if (wrong := free_text.fault(remark, MOST_REMARK_CHARACTERS)) is not None:
            raise UsageError(f"the remark {wrong}")

        def work(connection: sa.Connection) -> tuple[DeskV1, bool]:
            row = batch_row(connection, key)
            until = None if row is None else _take(connection, row["id"])
            if row is None or until is None:
                before = outcome_of(connection, key)
                if before is None:
                    raise NotAtDesk(f"no batch {key.batch_id!r} of gate {key.gate} waits for a person")
                offer: Offer = offered(connection, row["id"]) if row else ((), None)
                return before, _is_that(before, act, by, offer)
            now = self._clock()
            if now > until:
                return self._record(connection, [(row, until, None, None, "")], now)[0], False
            text = _text_of(act, offered(connection, row["id"]))
            made = self._record(connection, [(row, until, act, by, remark)], now, text)[0]
            if isinstance(act, Release):
                # Last, as with what ships: once a closing has returned, nothing goes out that did not know of it.
                newest_version(connection, key.gate)
                closing = closing_of(connection, key.gate)
                if closing is not None and act.knowing != closing.version:
                    raise GateIsClosed(key.gate, closing)
            return made, True

        outcome, ours = self._database.writing(work)
        if not ours:
            raise AlreadyDecided(outcome)
        return outcome

    def hold_all(self, gate: str, *, by: str, remark: str) -> int:
        """Reject everything that waits at a gate, `MOST_AT_ONCE` in a transaction; returns how many."""

        def work(connection: sa.Connection) -> int:
            said = remark[:MOST_REMARK_CHARACTERS]
            return self._end(connection, desk_items.c.gate == gate, Reject(), by, said)

        held = 0
        while done := self._database.writing(work):
            held += done
        return held

    def overdue(self) -> bool:
        """Whether anything waits whose deadline has passed."""
        query = sa.select(desk_items.c.batch).where(desk_items.c.until < self._clock()).limit(1)
        return bool(self._database.rows(query))

    def expire(self) -> int:
        """Reject some of what has waited past its deadline, the oldest first; returns how many, at most `MOST_AT_ONCE`."""

        def work(connection: sa.Connection) -> int:
            return self._end(connection, desk_items.c.until < self._clock(), None, None, "")

        return self._database.writing(work)

    def reject_overdue(self, lease: ProcessLease) -> int:
        """Reject everything that is overdue, unless another process has this lease; returns how much it was."""
        if not self.overdue():
            return 0
        ours, rejected = copy(self), 0
        ours._database = self._database.under(lease.check)
        try:
            while lease.held() and (some := ours.expire()):
                rejected += some
        finally:
            lease.release()
        if rejected:
            log.info("desk.deadlines_passed", rejected=rejected)
        return rejected

    def _end(
        self,
        connection: sa.Connection,
        which: sa.ColumnElement[bool],
        act: Reject | None,
        by: str | None,
        remark: str,
    ) -> int:
        """Reject the oldest of those; returns how many, at most `MOST_AT_ONCE`."""
        query = (
            sa.select(*ROW, desk_items.c.until)
            .select_from(ITEMS)
            .where(which)
            .order_by(desk_items.c.until, desk_items.c.batch)
            .limit(MOST_AT_ONCE)
        )
        rows = connection.execute(query).mappings().all()
        # Without those that somebody decides about at this moment: whoever deletes a row alone decides.
        gone = [row for row in rows if _take(connection, row["id"]) is not None]
        taken = [(row, row["until"], act, by, remark) for row in gone]
        return len(self._record(connection, taken, self._clock())) if taken else 0

    def _record(
        self,
        connection: sa.Connection,
        taken: Sequence[tuple[Row, datetime, Release | Reject | None, str | None, str]],
        now: datetime,
        text: tuple[str, bool] | None = None,
    ) -> list[DeskV1]:
        """Write the outcomes of rows that are deleted; an act of None is the deadline's."""
        events = []
        for row, until, act, by, remark in taken:
            released = act if isinstance(act, Release) else None
            shown, edited = text if released is not None and text is not None else (None, False)
            salt = secrets.token_bytes(HASH_BYTES)
            event = DeskV1(
                schema=SCHEMA,
                desk_id=desk_id(key_of(row)),
                action_id=row["action_id"],
                **{name: row[name] for name in BATCH},
                action="rejected" if released is None else "released",
                reason="deadline_passed" if act is None else "person",
                selected=None if released is None else released.response_id,
                text=shown,
                claims=released.claims if released is not None and released.claims else msgspec.UNSET,
                edited=edited,
                by=by,
                remark=remark,
                until=until,
                decided_at=now,
            )
            connection.execute(
                sa.insert(desk_outcomes).values(
                    row_of(
                        desk_outcomes,
                        event,
                        id=event.desk_id,
                        response_id=event.selected,
                        claims=event.claims or None,
                        text_mac=None if shown is None else text_mac(salt, shown),
                        at=now,
                    )
                )
            )
            if shown is not None:
                connection.execute(sa.insert(desk_texts).values(outcome=event.desk_id, text=shown, salt=salt))
            events.append(event)
        control.append(connection, desk_outcomes, [(event.desk_id,) for event in events], now=now)
        if self._shared.publish:
            receipts = receipts_of(connection, events)
            for event, (row, *_) in zip(events, taken, strict=True):
                message = self._shared.desk_message(event, key=row["action_key"], trace=row["action_headers"])
                headers = with_receipt(message.headers, receipts[event.desk_id])
                enqueue(connection, replace(message, headers=headers), now)
        return events


def text_mac(salt: bytes, text: str) -> bytes:
    """What the control log holds of a text that was released."""
    return hmac.digest(salt, canonical_json([text]), "sha256")


def _take(connection: sa.Connection, batch: int) -> datetime | None:
    """Delete the row of a batch that waits, after whoever is about to, and return its deadline; None where it is gone."""
    deleted = sa.delete(desk_items).where(desk_items.c.batch == batch).returning(desk_items.c.until)
    return connection.execute(deleted).scalar_one_or_none()


def _own(act: Release, offer: Offer) -> str | None:
    """The text that is released where nobody edits it; None: the batch has no such answer."""
    answers, claims = offer
    if claims is not None:
        return claims.with_claims(act.claims) if act.response_id == claims.id else None
    own = (one.text for one in answers if one.id == act.response_id and not act.claims)
    return next(own, None)


def _text_of(act: Release | Reject, offer: Offer) -> tuple[str, bool] | None:
    """The text that is released, and whether it is another than the answer's."""
    if not isinstance(act, Release):
        return None
    if any(one.text is None for one in offer[0]):
        raise UsageError("its texts were erased: it can only be rejected")
    own = _own(act, offer)
    if own is None:
        raise UsageError(f"the batch has no answer {act.response_id!r}")
    if act.text is None or act.text == own:
        if is_blank(own):
            raise UsageError(f"the answer {act.response_id!r} has nothing to see; write one, or reject")
        return own, False
    if is_blank(act.text):
        raise UsageError("an edited answer has a text that can be seen; to show nothing, reject")
    return act.text, True


def _is_that(before: DeskV1, act: Release | Reject, by: str, offer: Offer) -> bool:
    """Whether an outcome is this very act of this person: sent twice, or sent again when the reply was lost."""
    if before.by != by:
        return False
    if not isinstance(act, Release):
        return before.action == "rejected"
    if (before.selected, before.claims or ()) != (act.response_id, act.claims):
        return False
    return before.text == (_own(act, offer) if act.text is None else act.text)
