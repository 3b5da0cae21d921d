"""Views that the program reads as well: decisions as exports have them, and the severities that count."""

import sqlalchemy as sa

from streamer.store.db.schema.decisions import batches, decisions, responses
from streamer.store.db.schema.gates import gate_revisions, policies
from streamer.store.db.schema.joins import (
    BATCH,
    DECIDED,
    POLICY_OF_DECISION,
    RESPONSE,
    REVISION_OF_POLICY,
    newest,
)
from streamer.store.db.schema.labels import label_revisions
from streamer.store.db.schema.log import outcomes
from streamer.store.db.schema.types import REAL

_OWN = decisions.c.cut_state.is_not(None)
_SINGLE = (
    *batches.c[BATCH],
    *(one for one in decisions.c if one.info["shown"]),
    sa.func.coalesce(decisions.c.cut_state, policies.c.state).label("policy_state"),
    sa.case((_OWN, decisions.c.cut_threshold), else_=policies.c.threshold).label("lambda"),
    *gate_revisions.c["alpha", "method", "shape"],
    *outcomes.c["log_id", "topic", "partition", "offset"],
)
DECISIONS = (
    sa.select(
        *_SINGLE,
        sa.func.count(responses.c.batch).label("responses"),
        sa.func.sum(sa.case((responses.c.action == "ship", 1), else_=0)).label("shipped"),
        sa.func.max(responses.c.score).label("best_score"),
        sa.func.avg(responses.c.score, type_=REAL).label("mean_score"),
    )
    .select_from(DECIDED)
    .outerjoin(responses, responses.c.batch == decisions.c.batch)  # a batch may have none
    .join(policies, POLICY_OF_DECISION)
    .join(gate_revisions, REVISION_OF_POLICY)
    .join(outcomes, (outcomes.c.batch == decisions.c.batch) & (outcomes.c.kind == "decision"))
    .group_by(
        *(one for one in _SINGLE if isinstance(one, sa.Column)),
        *decisions.c["cut_state", "cut_threshold"],
        *policies.c["state", "threshold"],
    )
)
"""`v_decisions`: a row for each decision; of the table what its columns say is shown."""


def latest(labels: sa.FromClause, *conditions: sa.ColumnElement[bool]) -> sa.Subquery:
    """Select the labels that count, of those that meet the conditions: the latest of each labeller for a response and kind.

    Effective time is the earlier of labelled and received, so that a date in the future wins
    nothing; of equally late ones the one stored later counts. `came` is when the first of the
    response and kind was received, whoever it was from. `labels` has the columns of
    `label_revisions`.
    """
    of = labels.c[(*RESPONSE, "kind")]
    recency = sa.func.row_number().over(
        partition_by=[*of, labels.c.labeller], order_by=[labels.c.effective_at.desc(), labels.c.id.desc()]
    )
    came = sa.func.min(labels.c.received_at).over(partition_by=[*of])
    columns = (*of, *labels.c["severity", "effective_at"])
    every = sa.select(*columns, came.label("came"), recency.label("recency")).where(*conditions).subquery()
    return sa.select(*every.c).where(every.c.recency == 1).subquery("latest")


def severities(read: str) -> sa.Select[tuple[object, ...]]:
    """Make `v_severities` of the labels `l` that are read of gates with the settings `g`, an SQL condition."""
    label, revision = label_revisions.alias("l"), gate_revisions.alias("g")
    of = newest(policies.c.version).subquery("newest")
    found = latest(
        sa.select(label)
        .join_from(label, of, of.c.gate == label.c.gate)
        .join(policies, (policies.c.gate == of.c.gate) & (policies.c.version == of.c.version))
        .join(
            revision, (revision.c.gate == policies.c.gate) & (revision.c.revision == policies.c.gate_revision)
        )
        .where(sa.text(read))
        .subquery("read")
    ).c
    by = found[(*RESPONSE, "kind")]
    return sa.select(
        *by,
        sa.func.avg(found.severity).label("severity"),
        sa.func.count().label("labellers"),
        sa.func.max(found.effective_at).label("effective_at"),
    ).group_by(*by)
