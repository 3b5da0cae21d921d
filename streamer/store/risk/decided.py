"""What was decided, counted at once: no label is waited for, and nothing needs to have been read before."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from streamer.risk.rounds.report import Decided, DecidedHour
from streamer.store.db.schema import batches, decisions, responses
from streamer.store.db.schema.joins import is_label
from streamer.store.db.schema.types import UtcDateTime

MOST_COUNTED = 20_000
"""Decisions that are counted at most, the newest: a look takes no longer at a gate with much traffic."""

_SHIPPED = ("ship", "mixed")


def decided(
    connection: sa.Connection,
    labels: sa.FromClause,
    gate: str,
    *,
    kind: str,
    now: datetime,
    period: timedelta,
) -> Decided | None:
    """Count a gate's decisions of the last `period`; None where there is none. By the `labels`
    that are read, of `kind`, an answer is labelled."""
    newest = (
        sa.select(*decisions.c["batch", "gate", "decided_at", "outcome", "reason"])
        .where(decisions.c.gate == gate, decisions.c.decided_at >= now - period)
        .order_by(decisions.c.batch.desc())
        .limit(MOST_COUNTED)
        .subquery()
    )
    form = (
        sa.func.strftime("%Y-%m-%d %H", newest.c.decided_at)
        if connection.dialect.name == "sqlite"
        else sa.func.to_char(sa.func.timezone("UTC", newest.c.decided_at), "YYYY-MM-DD HH24")
    )
    first = sa.type_coerce(sa.func.min(newest.c.decided_at), UtcDateTime())
    hour = form.label("hour")
    query = sa.select(hour, *newest.c["outcome", "reason"], sa.func.count(), first)
    rows: Sequence[Sequence[Any]] = connection.execute(
        query.group_by(hour, *newest.c["outcome", "reason"])
    ).all()
    if not rows:
        return None
    held: Counter[str] = Counter()
    hours: dict[datetime, list[int]] = defaultdict(lambda: [0, 0])
    for began, outcome, reason, count, _ in rows:
        of_hour = hours[datetime.strptime(began, "%Y-%m-%d %H").replace(tzinfo=UTC)]
        of_hour[0] += count
        if outcome in _SHIPPED:
            of_hour[1] += count
        else:
            held[reason] += count
    given = sa.exists().where(
        batches.c.id == newest.c.batch,
        responses.c.batch == newest.c.batch,
        responses.c.action == "ship",
        is_label(labels, batches, kind),
    )
    labelled = sa.select(sa.func.count()).select_from(newest).where(newest.c.outcome.in_(_SHIPPED), given)
    return Decided(
        since=min(row[-1] for row in rows),
        decided=sum(count for count, _ in hours.values()),
        shipped=sum(shipped for _, shipped in hours.values()),
        labelled=connection.execute(labelled).scalar_one(),
        held=dict(held.most_common()),
        hours=tuple(DecidedHour(at, *hours[at]) for at in sorted(hours)[-24:]),
    )
