"""What people made of what a gate held."""

from datetime import datetime
from statistics import fmean

import sqlalchemy as sa

from streamer.risk.rounds.report import DeskReport
from streamer.store.db.schema import desk_outcomes
from streamer.store.db.schema.joins import same
from streamer.store.db.schema.views import latest
from streamer.store.labels.revisions import means


def read_report(
    connection: sa.Connection, labels: sa.FromClause, gate: str, *, kind: str, since: datetime
) -> DeskReport:
    """Count the gate's outcomes since a moment, and average the severities of `kind` of what was
    released as it was: of answers, and of claims that were put back.

    `labels` : those that are read.
    """
    own = desk_outcomes.c
    of_gate = sa.and_(own.gate == gate, own.at >= since)
    counts = {
        (action, reason, edited): count
        for action, reason, edited, count in connection.execute(
            sa.select(own.action, own.reason, own.edited, sa.func.count())
            .where(of_gate)
            .group_by(own.action, own.reason, own.edited)
        )
    }
    found = latest(labels, labels.c.gate == gate, labels.c.kind == kind)
    said = connection.execute(
        sa.select(*own["id", "response_id", "claims"], found.c.response_id.label("of"), found.c.severity)
        .join_from(desk_outcomes, found, same(found, desk_outcomes, "batch_id", "attempt"))
        .where(of_gate, own.action == "released", ~own.edited)
    )
    given = means(
        (one.id, one.of, one.severity) for one in said if one.of in (one.claims or (one.response_id,))
    )
    released = {edited: count for (action, _, edited), count in counts.items() if action == "released"}
    return DeskReport(
        since=since,
        released=sum(released.values()),
        edited=released.get(True, 0),
        rejected=counts.get(("rejected", "person", False), 0),
        expired=counts.get(("rejected", "deadline_passed", False), 0),
        labelled=len(given),
        severity=fmean(given.values()) if given else None,
    )
