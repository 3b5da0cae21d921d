"""Decisions that somebody looks for: by batch, words of the prompt, time, score, segment and outcome, the newest first.

However rare what is looked for, one question reads at most `MOST_SEARCHED` decisions, and says where the next goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import sqlalchemy as sa

from streamer.store.db.schema import batches, decisions, gates, responses
from streamer.store.db.schema.joins import DECIDED
from streamer.store.db.schema.types import of_row
from streamer.store.part import Part

MOST_SEARCHED = 20_000
_EXCERPT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is looked for; None: whatever it is.

    `batch` is the batch id, or with a `*` at its end how it begins. `words` are in the prompt, in
    any order and case; what is not kept, or was erased, has none. It was decided at or after
    `since` and before `until`; the highest score in the batch is in [`least_score`, `most_score`].
    `outcome` says whether something shipped, `drawn` whether the audit sample took it.
    """

    gate: str | None = None
    batch: str | None = None
    words: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    least_score: float | None = None
    most_score: float | None = None
    segment: str | None = None
    outcome: Literal["shipped", "held"] | None = None
    drawn: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDecision:
    """A decision in a list; `number` is its place in the record. `prompt` is how it begins, None
    once erased, or where texts are not kept. `best_score` is of its responses, or claims; None
    when they were not scored."""

    number: int
    gate: str
    batch_id: str
    attempt: int
    decided_at: datetime
    unit: str
    mode: str
    outcome: str
    reason: str
    policy_version: int
    segment: str | None
    sampled: bool
    best_score: float | None
    responses: int
    prompt: str | None


@dataclass(frozen=True, slots=True)
class FoundDecisions:
    """A page of them. Give `more` as `before` to go on; None: there is nothing older.
    `cut_short`: the page is not full because `MOST_SEARCHED` decisions were read."""

    rows: tuple[FoundDecision, ...]
    more: int | None
    cut_short: bool = False


class DecisionSearch(Part):
    """Looks decisions up."""

    def find(
        self, wanted: Wanted, *, before: int | None = None, limit: int = 50, most: int = MOST_SEARCHED
    ) -> FoundDecisions:
        """Return the newest decisions that are wanted, of those with numbers below `before`."""
        with self._database.reading(snapshot=True) as connection:
            names = [wanted.gate] if wanted.gate else list(connection.scalars(sa.select(gates.c.name)))
            candidates = _candidates(wanted, names, before).limit(most).subquery()
            rows = connection.execute(_matching(wanted, candidates).limit(limit + 1)).mappings().all()
            found = tuple(of_row(FoundDecision, row) for row in rows)
            if len(found) > limit:
                return FoundDecisions(found[:limit], found[limit - 1].number)
            searched, last = connection.execute(
                sa.select(sa.func.count(), sa.func.min(candidates.c.number)).select_from(candidates)
            ).one()
        return (
            FoundDecisions(found, last, cut_short=True) if searched == most else FoundDecisions(found, None)
        )

    def texts(
        self, gate: str, answers: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], tuple[str | None, str | None]]:
        """How prompt and text of answers of first attempts begin, by batch id and response; those on record, None if erased."""
        if not answers:
            return {}
        query = (
            sa.select(
                batches.c.batch_id,
                responses.c.response_id,
                sa.func.substr(batches.c.prompt, 1, _EXCERPT),
                sa.func.substr(responses.c.text, 1, _EXCERPT),
            )
            .join(responses, responses.c.batch == batches.c.id)
            .where(
                batches.c.gate == gate,
                batches.c.attempt == 1,
                batches.c.batch_id.in_({batch for batch, _ in answers}),
            )
        )
        wanted = set(answers)
        return {
            (batch, response): (prompt, text)
            for batch, response, prompt, text in self._database.rows(query)
            if (batch, response) in wanted
        }


def _candidates(wanted: Wanted, names: list[str], before: int | None) -> sa.Select[tuple[int]]:
    """What the indexes find, the newest first."""
    query = sa.select(decisions.c.batch.label("number")).where(decisions.c.gate.in_(names))
    if wanted.batch:
        query = query.select_from(DECIDED).where(batches.c.gate.in_(names))
        if wanted.batch.endswith("*"):
            query = query.where(batches.c.batch_id.startswith(wanted.batch[:-1], autoescape=True))
        else:
            query = query.where(batches.c.batch_id == wanted.batch)
    if before is not None:
        query = query.where(decisions.c.batch < before)
    if wanted.since is not None:
        query = query.where(decisions.c.decided_at >= wanted.since)
    if wanted.until is not None:
        query = query.where(decisions.c.decided_at < wanted.until)
    return query.order_by(decisions.c.batch.desc())


def _matching(wanted: Wanted, candidates: sa.Subquery) -> sa.Select[tuple[object, ...]]:
    own = responses.c.batch == decisions.c.batch
    best = sa.select(sa.func.max(responses.c.score)).where(own).scalar_subquery()
    query = (
        sa.select(
            candidates.c.number,
            *decisions.c["gate", "decided_at", "unit", "mode", "outcome", "reason", "policy_version"],
            *decisions.c["segment", "sampled"],
            *batches.c["batch_id", "attempt"],
            sa.func.substr(batches.c.prompt, 1, _EXCERPT).label("prompt"),
            best.label("best_score"),
            sa.select(sa.func.count()).select_from(responses).where(own).scalar_subquery().label("responses"),
        )
        .select_from(candidates)
        .join(decisions, decisions.c.batch == candidates.c.number)
        .join(batches, batches.c.id == candidates.c.number)
        .order_by(candidates.c.number.desc())
    )
    for word in wanted.words:
        query = query.where(batches.c.prompt.icontains(word, autoescape=True))
    if wanted.least_score is not None:
        query = query.where(best >= wanted.least_score)
    if wanted.most_score is not None:
        query = query.where(best <= wanted.most_score)
    if wanted.segment is not None:
        query = query.where(decisions.c.segment == wanted.segment)
    if wanted.drawn is not None:
        query = query.where(decisions.c.sampled.is_(wanted.drawn))
    if wanted.outcome is not None:
        shipped = decisions.c.outcome.in_(("ship", "mixed"))
        query = query.where(shipped if wanted.outcome == "shipped" else ~shipped)
    return query
