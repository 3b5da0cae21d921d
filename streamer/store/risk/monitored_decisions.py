"""Decisions and labels as watching reads them: page by page, by their numbers, with nothing read twice."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple

import sqlalchemy as sa

from streamer.gates.gate import mean_score
from streamer.gates.rule import ships_nothing
from streamer.gates.settings import GateSettings
from streamer.risk.rounds.columns import LoggedColumns, LoggedDecisions, PolicyFacts
from streamer.risk.rounds.horizon import Probe
from streamer.risk.rounds.logged import LoggedDecision, Terms
from streamer.risk.rounds.report import Backlog
from streamer.risk.rounds.verdict import MOST_COUNTED
from streamer.store.db import bulk_insert
from streamer.store.db.engine import first_unfinished
from streamer.store.db.schema import (
    batches,
    calibration_inputs,
    decisions,
    gate_revisions,
    label_revisions,
    policies,
    responses,
)
from streamer.store.db.schema.joins import (
    ANSWERED,
    BATCH,
    DECIDED,
    POLICY_OF_DECISION,
    RESPONSE,
    REVISION_OF_POLICY,
    is_label,
    same,
)
from streamer.store.db.schema.types import UtcDateTime
from streamer.store.db.schema.views import latest
from streamer.store.labels.revisions import means, wrong_above
from streamer.store.part import Part
from streamer.store.policies.policy_rows import SETTINGS, settings_of
from streamer.store.risk.audit_rates import newest_shipped

Ask = Callable[[sa.Select[Any]], Sequence[Sequence[Any]]]

NEWEST = 2**63 - 1
_MOST_REFERENCES = 5_000
"""More would take long to read and say little more."""

_READ = sa.select(
    decisions.c.batch,
    batches.c.batch_id,
    decisions.c.policy_version,
    # Without a time zone on SQLite: only few are looked at.
    sa.type_coerce(decisions.c.decided_at, UtcDateTime.impl).label("decided_at"),
    *decisions.c["sampled", "sampling_probability"],
    # As it was written: whether the numbers are needed is known later.
    sa.cast(decisions.c.cloud, sa.Text).label("cloud"),
    decisions.c.budget_count / (decisions.c.budget_groups + 1.0),
).select_from(DECIDED)
"""First of all, of decisions: the columns of `_logged`."""
_SHIPPED = responses.c.action == "ship"
_COUNTS = (
    decisions.c.batch,
    sa.func.count(responses.c.batch).label("responses"),
    sa.func.count(responses.c.score).label("scored"),
    sa.func.count().filter(_SHIPPED).label("shipped"),
    sa.func.count().filter(responses.c.drawn).label("drawn"),
    sa.func.count().filter(responses.c.drawn & _SHIPPED).label("needed"),
    sa.func.max(responses.c.score).label("best"),
)
"""What is asked of the responses of every batch, drawn or not."""


class _NeedsLabel(NamedTuple):
    """What decided whether a response needs a severity."""

    response_id: str
    ships: bool
    drawn: bool


def probe(connection: sa.Connection) -> Probe:
    """Say how far the record reaches, by one statement and so at one moment."""
    numbers = (
        sa.select(sa.func.coalesce(sa.func.max(batches.c.id), 0)).scalar_subquery(),
        sa.select(sa.func.coalesce(sa.func.max(label_revisions.c.id), 0)).scalar_subquery(),
    )
    if connection.dialect.name == "sqlite":
        # One writer at a time: whoever comes later takes larger numbers.
        found = connection.execute(sa.select(*numbers)).one()
        return Probe(found[0], found[1], 0, 0)
    # Whoever writes a batch has locked its partition's progress first and so has a transaction id by then.
    snapshot = "(SELECT pg_current_snapshot() AS s) AS now"
    told = connection.execute(
        sa.select(
            *numbers,
            sa.literal_column("pg_snapshot_xmax(s)::text::bigint"),
            first_unfinished(),
        ).select_from(sa.text(snapshot))
    ).one()
    return Probe(told[0], told[1], told[2], told[3])


def gates_with(connection: sa.Connection, number: sa.Column[int], after: int, until: int) -> frozenset[str]:
    """Say which gates have rows of a table with numbers above `after` and up to `until`."""
    if until <= after:
        return frozenset()
    query = sa.select(number.table.c.gate).distinct().where(number > after, number <= until)
    return frozenset(connection.execute(query).scalars())


class MonitoredDecisions(Part):
    """What watching reads of decisions and labels."""

    def probe(self) -> Probe:
        return self._database.read(probe)

    def decided(self, gate: str, *, after: int, until: int, limit: int) -> LoggedDecisions:
        """Read the next first attempts of a gate, in the order of their numbers."""
        number = decisions.c.batch
        query = (
            _READ.where(decisions.c.gate == gate, number > after, number <= until, batches.c.attempt == 1)
            .order_by(number)
            .limit(limit)
        )
        with self._database.reading(snapshot=True) as connection:
            rows = bulk_insert.as_given(connection.execute(query))
            if not rows:
                return LoggedDecisions()
            stretch = (decisions.c.gate == gate, number.between(rows[0][0], rows[-1][0]))
            wanted = {row[0] for row in rows}  # later attempts lie between them

            def ask(asked: sa.Select[Any]) -> Sequence[Sequence[Any]]:
                found = bulk_insert.as_given(connection.execute(asked.where(*stretch)))
                return [row for row in found if row[0] in wanted]

            return _logged(connection, gate, rows, ask)

    def reference(self, run: int) -> LoggedDecisions:
        """Read the newest decisions that a calibration run read, in the order of their numbers."""
        read = (
            sa.select(calibration_inputs.c.batch)
            .where(calibration_inputs.c.run == run)
            .distinct()
            .order_by(calibration_inputs.c.batch.desc())
            .limit(_MOST_REFERENCES)
        )
        query = _READ.where(decisions.c.batch.in_(read)).order_by(decisions.c.batch)
        with self._database.reading(snapshot=True) as connection:
            rows = connection.execute(query).all()
            gate = sa.select(decisions.c.gate).where(decisions.c.batch.in_([row.batch for row in rows[:1]]))
            found = connection.execute(gate).scalar() or ""
            return _logged(connection, found, rows, _by_number(connection, rows))

    def labelled(self, gate: str, decisions: LoggedDecisions, *, until: int) -> LoggedDecisions:
        """Add what labels up to a number say: the needed severities, and predictions where a judge has seen all that shipped."""
        with self._labels_of(gate) as (connection, labels):
            return _labelled(connection, labels, gate, decisions, until)

    def relabelled(
        self, gate: str, numbers: Sequence[int], *, after: int, until: int
    ) -> Sequence[LoggedDecision]:
        """Read again those of these decisions that labels with numbers above `after` and up to `until` are of."""
        label = label_revisions.c
        query = (
            sa.select(batches.c.id)
            .join_from(label_revisions, batches, same(batches, label_revisions, *BATCH))
            .where(label.gate == gate, label.id > after, label.id <= until, label.attempt == 1)
        )
        with self._labels_of(gate) as (connection, labels):
            wanted = sorted(set(numbers).intersection(connection.execute(query.distinct()).scalars()))
            keys = [(one,) for one in wanted]
            rows = sorted(
                bulk_insert.look_up_rows(connection, _READ, [decisions.c.batch], keys),
                key=itemgetter(0),
            )
            found = _logged(connection, gate, rows, _by_number(connection, rows))
            return _labelled(connection, labels, gate, found, until)

    def urgent(self, gate: str, kind: str, count: int) -> list[float | None]:
        """Read what labels of a kind say of what shipped of the newest `count` such decisions, whoever asked; None: nothing."""
        with self._labels_of(gate) as (connection, labels):
            numbers = list(connection.execute(newest_shipped(gate, count)).scalars())
            query = sa.select(batches.c.batch_id, responses.c.response_id).join_from(
                batches, responses, responses.c.batch == batches.c.id
            )
            shipped = connection.execute(
                query.where(batches.c.id.in_(numbers), _SHIPPED, batches.c.attempt == 1)
            ).all()
            ids = sorted({one.batch_id for one in shipped})
            said, _ = _severities(connection, labels, gate, {kind}, ids, NEWEST)
        return [said.get((one.batch_id, one.response_id, kind)) for one in shipped]

    def late_labels(self, gate: str, *, after: int, until: int, read: int) -> int:
        """Count labels that are of the kind and of a response that a decision already read had needed, and no repeats."""
        with self._labels_of(gate) as (connection, labels):
            earlier = labels.alias()
            said = (
                sa.select(earlier.c.severity)
                .where(same(earlier, labels, *RESPONSE, "kind", "labeller"), earlier.c.id < labels.c.id)
                .order_by(earlier.c.effective_at.desc(), earlier.c.id.desc())
                .limit(1)
                .correlate(labels)
                .scalar_subquery()
            )
            return connection.execute(
                sa.select(sa.func.count())
                .select_from(ANSWERED)
                .join(policies, POLICY_OF_DECISION)
                .join(gate_revisions, REVISION_OF_POLICY)
                .join(labels, is_label(labels, batches, gate_revisions.c.severity_kind))
                .where(
                    labels.c.gate == gate,
                    labels.c.id > after,
                    labels.c.id <= until,
                    labels.c.attempt == 1,
                    labels.c.severity.is_distinct_from(said),
                    batches.c.id <= read,
                    decisions.c.sampled,
                    responses.c.drawn,
                    _SHIPPED,
                )
            ).scalar_one()


def _labelled(
    connection: sa.Connection, labels: sa.FromClause, gate: str, found: LoggedDecisions, until: int
) -> LoggedDecisions:
    asked = found.asked()
    if not asked:
        return found
    kinds = {one.settings.severity_kind for one in asked}
    kinds |= {one.settings.judge_kind for one in asked if one.settings.judge_kind is not None}
    said, came = _severities(connection, labels, gate, kinds, [one.batch_id for one in asked], until)
    marks = _marks(connection, asked)
    return found.with_known(_with(one, marks.get(one.number, ()), said, came) for one in asked)


def backlog(
    connection: sa.Connection,
    labels: sa.FromClause,
    gate: str,
    settings: GateSettings,
    *,
    after: int,
    bet: int,
) -> Backlog:
    """Count the first attempts with numbers above `bet`, and the labels that those above `after` wait for."""
    unread = (
        sa.select(decisions.c.batch, decisions.c.sampled, decisions.c.decided_at, *batches.c[BATCH])
        .select_from(DECIDED)
        .where(decisions.c.gate == gate, decisions.c.batch > after, batches.c.attempt == 1)
    )
    newer = unread.where(decisions.c.batch > bet).limit(MOST_COUNTED).subquery()
    count = connection.execute(sa.select(sa.func.count()).select_from(newer)).scalar_one()
    found = unread.where(decisions.c.sampled).order_by(decisions.c.batch).limit(MOST_COUNTED).subquery()
    given: sa.ColumnElement[bool] = sa.exists().where(is_label(labels, found, settings.severity_kind))
    if settings.until_wrong:
        given |= wrong_above(labels, found, settings.severity_kind)
    waiting, oldest = connection.execute(
        sa.select(sa.func.count(), sa.func.min(found.c.decided_at))
        .select_from(found)
        .join(responses, responses.c.batch == found.c.batch)
        .where(responses.c.drawn, responses.c.action == "ship", ~given)
    ).one()
    return Backlog(unread=count, labels=waiting, oldest=oldest)


def _by_number(connection: sa.Connection, rows: Sequence[Sequence[Any]]) -> Ask:
    """Ask for decisions far apart: what lies between them is not read."""
    keys = [(row[0],) for row in rows]
    return lambda asked: bulk_insert.look_up_rows(connection, asked, [decisions.c.batch], keys)


def _logged(connection: sa.Connection, gate: str, rows: Sequence[Sequence[Any]], ask: Ask) -> LoggedDecisions:
    """Make decisions of rows of the ledger, converted or as the driver gives them, in the order of their numbers.

    `ask` restricts a query to them.
    """
    if not rows:
        return LoggedDecisions()
    numbers, batch_ids, versions, decided_at, sampled, probability, clouds, budgets = zip(*rows, strict=True)
    made_by = _policies(connection, gate, sorted(set(versions)))
    of_batch = decisions.c.batch == responses.c.batch
    counts = (
        sa.select(*_COUNTS)
        .join_from(decisions, responses, of_batch, isouter=True)  # a batch may have none, and is held
        .group_by(decisions.c.batch)
        .order_by(decisions.c.batch)
    )
    counted, count, scored, shipped, drawn, needed, best = zip(*ask(counts), strict=True)
    if counted != numbers:
        raise LookupError(f"decisions of {gate} are missing; `streamer audit verify` shows which")
    units = {version: facts.settings.unit for version, facts in made_by.items()}
    shares: Sequence[float]
    scores: Sequence[float | None] = best
    if set(units.values()) == {"best"}:
        # Of the units `best` and `batch` one thing ships or nothing does.
        shares = [float(one > 0) for one in shipped]
    else:
        shares = [
            one / max(1, of) if units[version] == "response" else float(one > 0)
            for one, of, version in zip(shipped, count, versions, strict=True)
        ]
        scores = _scores(
            ask,
            of_batch,
            [(n, units[v], score) for n, v, score in zip(numbers, versions, best, strict=True)],
        )
    return LoggedDecisions(
        LoggedColumns(
            number=numbers,
            batch_id=batch_ids,
            policy_version=versions,
            decided_at=_moments(decided_at),
            sampled=[bool(was) for was in sampled],
            probability=probability,
            cloud=clouds,
            scored=[one > 0 for one in scored],
            shipped=shares,
            score=scores,
            drawn=drawn,
            needed=[one if was else 0 for one, was in zip(needed, sampled, strict=True)],
            needed_budget=budgets,
        ),
        made_by,
    )


def _moments(given: Sequence[datetime | str]) -> Sequence[datetime]:
    """SQLite's driver gives text, which converts many times faster here than by a type of SQLAlchemy."""
    return [datetime.fromisoformat(one) if isinstance(one, str) else one for one in given]


def _scores(
    ask: Ask, of_batch: sa.ColumnElement[bool], best: Iterable[tuple[int, str, float | None]]
) -> list[float | None]:
    """Return what the gate cuts: the best score for the unit `best`, else the mean. Given are number, unit and best score."""
    query = sa.select(responses.c.batch, responses.c.score).join_from(decisions, responses, of_batch)
    all_scores: dict[int, list[float]] = defaultdict(list)
    for batch, score in ask(query.where(responses.c.score.is_not(None))):
        all_scores[batch].append(score)
    return [
        score if score is None or unit == "best" else mean_score(all_scores[number])
        for number, unit, score in best
    ]


def _with(
    one: LoggedDecision,
    marks: Sequence[_NeedsLabel],
    said: dict[tuple[Any, ...], float],
    came: dict[tuple[Any, ...], datetime],
) -> LoggedDecision:
    def severity(kind: str, mark: _NeedsLabel) -> float | None:
        return said.get((one.batch_id, mark.response_id, kind))

    needed = [mark for mark in marks if mark.drawn and mark.ships] if one.sampled else []
    there = [severity(one.settings.severity_kind, mark) for mark in needed]
    predicted = None
    if one.settings.judge_kind is not None:
        shipped = [mark for mark in marks if mark.ships]
        judged = [severity(one.settings.judge_kind, mark) for mark in shipped]
        of = len(marks) if one.settings.unit == "response" else len(shipped)
        given = [severity for severity in judged if severity is not None]
        if len(given) == len(shipped):
            predicted = sum(given) / of
    moments = [came.get((one.batch_id, mark.response_id, one.settings.severity_kind)) for mark in needed]
    if one.settings.until_wrong and 1 in there:
        decisive = [at for at, bad in zip(moments, there, strict=True) if bad == 1 and at is not None]
        moments = [min(decisive)]
    known = [moment for moment in moments if moment is not None]
    return replace(
        one,
        severities=tuple(severity for severity in there if severity is not None),
        labelled_at=max(known) if known and len(known) == len(moments) else None,
        predicted=predicted,
    )


def _policies(connection: sa.Connection, gate: str, versions: Sequence[int]) -> dict[int, PolicyFacts]:
    query = (
        sa.select(
            policies.c.version,
            policies.c.state.label("policy_state"),
            # A rule may be large, and only that of a closed policy says more than its state.
            sa.type_coerce(
                sa.case((policies.c.state == "closed", policies.c.rule), else_=sa.null()),
                policies.c.rule.type,
            ).label("rule"),
            policies.c.calibration_run,
            *gate_revisions.c[SETTINGS],
        )
        .join(gate_revisions, REVISION_OF_POLICY)
        .where(policies.c.gate == gate)
    )
    found = bulk_insert.look_up(connection, query, [policies.c.version], [(version,) for version in versions])
    return {
        row["version"]: PolicyFacts(
            settings=(settings := settings_of(row)),
            terms=Terms.of(settings),
            run=row["calibration_run"],
            can_ship=not ships_nothing(row["policy_state"], row["rule"]),
        )
        for row in found
    }


def _marks(connection: sa.Connection, asked: Sequence[LoggedDecision]) -> dict[int, list[_NeedsLabel]]:
    """Responses of batches in event order: all where a judge is asked, else those alone whose severity is needed."""
    found: dict[int, list[_NeedsLabel]] = defaultdict(list)
    query = sa.select(
        responses.c.batch,
        responses.c.position,
        responses.c.response_id,
        _SHIPPED,
        responses.c.drawn,
    )
    judged = [(one.number,) for one in asked if one.settings.judge_kind is not None]
    others = [(one.number,) for one in asked if one.settings.judge_kind is None]
    needed = query.where(responses.c.drawn, _SHIPPED)
    rows = bulk_insert.look_up_rows(connection, query, [responses.c.batch], judged)
    rows += bulk_insert.look_up_rows(connection, needed, [responses.c.batch], others)
    for row in sorted(rows):
        found[row[0]].append(_NeedsLabel(*row[2:]))
    return found


def _severities(
    connection: sa.Connection,
    labels: sa.FromClause,
    gate: str,
    kinds: set[str],
    batch_ids: Sequence[str],
    until: int,
) -> tuple[dict[tuple[Any, ...], float], dict[tuple[Any, ...], datetime]]:
    """The present severity, by batch, response and kind; and when the first label of it was received, whoever it was from."""
    wanted = labels.c.kind.in_(sorted(kinds)), labels.c.id <= until
    found = latest(labels, labels.c.gate == gate, labels.c.attempt == 1, *wanted)
    query = sa.select(*found.c["batch_id", "response_id", "kind", "severity", "came"])
    rows = bulk_insert.look_up_rows(connection, query, [found.c.batch_id], [(one,) for one in batch_ids])
    return means(row[:4] for row in rows), {row[:3]: row[4] for row in rows}
