"""The rows of a calibration run, as they are written and as they are read back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby, starmap
from operator import itemgetter
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from streamer.calibration import Threshold
from streamer.calibration.full_fit import Prompts
from streamer.gates.batch_key import BatchKey
from streamer.gates.policy import Bursts, sealed_burst
from streamer.gates.rule import CalibrationLosses, Full, Rule
from streamer.gates.settings import GateSettings
from streamer.recalibration.sampled import (
    SampledGroup,
    SampledItem,
    bad_bursts,
    cuts_at_budget,
    is_bad,
    losses_by_score,
    prompts_of_rule,
)
from streamer.scoring.signals.signal_list import SignalList
from streamer.store.db import bulk_insert
from streamer.store.db.schema import (
    batches,
    calibration_candidates,
    calibration_inputs,
    calibration_runs,
    decisions,
    gate_revisions,
)
from streamer.store.db.schema.joins import BATCH, DECIDED, REVISION_OF_RUN, key_of, signals_of
from streamer.store.db.schema.types import HASH_BYTES, row_of

if TYPE_CHECKING:
    from streamer.recalibration.gate_rule import Outcome
    from streamer.recalibration.run import CalibrationRun


K = TypeVar("K")
V = TypeVar("V")


def write_run(
    connection: sa.Connection,
    run: CalibrationRun,
    *,
    by: str,
    now: datetime,
    outcome: Outcome,
    why: str,
) -> int:
    """Write a run with its inputs and candidates; returns its number. Raises `ValueError` for one that names no heads."""
    if run.heads is None or run.age_cut is None:
        raise ValueError(
            "a run that is recorded must say how high the chains were: give `calibrate_gate` its `heads`"
        )
    secret = token_bytes(
        HASH_BYTES
    )  # of this run alone: erased, it leaves nobody who finds a question by its burst
    identity: int = connection.execute(
        sa.insert(calibration_runs)
        .values(
            row_of(
                calibration_runs,
                run,
                gate=run.gate.gate,
                gate_revision=run.gate.revision,
                method=run.gate.settings.method,
                alpha=run.effective_alpha,
                groups=len(run.groups),
                items=run.drawn,
                missing=run.missing,
                guarantee=run.guarantee,
                state=run.decided.state,
                threshold=cut_of(run.decided),
                requested_by=by,
                finished_at=now,
                newer_than=None if run.since is None else run.since.moment,
                since_version=None if run.since is None else run.since.version,
                outcome=outcome,
                why=why,
                age_cut=run.age_cut.to_json(),
                suffix=None if run.suffix is None else run.suffix.to_json(),
                history=run.history.to_json(),
                burst_key=None if run.gate.settings.group_by is None else secret,
            )
        )
        .returning(calibration_runs.c.id)
    ).scalar_one()
    ids = _rows_of(connection, run.groups)
    inputs: list[dict[str, Any]] = [
        row_of(
            calibration_inputs,
            group,
            run=identity,
            batch=row,
            response_id=item.response_id,
            score=item.score,
            severity=item.severity,
            burst=None if group.burst is None else sealed_burst(group.burst, secret),
            bad=is_bad(run.gate.audit_salt, group) if run.gate.settings.calibrator.of_signals else None,
        )
        for row, group in zip(ids, run.groups, strict=True)
        for item in group.items
    ]
    bulk_insert.append(connection, calibration_inputs, inputs)
    bulk_insert.append(
        connection,
        calibration_candidates,
        [
            {
                "run": identity,
                "method": candidate.name,
                "decides": candidate.decides,
                "state": candidate.threshold.state,
                "threshold": cut_of(candidate.threshold),
                "rule": candidate.rule,
                "guarantee": candidate.threshold.guarantee,
            }
            for candidate in run.candidates
        ],
    )
    return identity


def cut_of(threshold: Threshold) -> float | None:
    """Return the number in a threshold; None where everything or nothing ships."""
    return float(threshold.value) if threshold.state == "cut" else None


def ids_of(connection: sa.Connection, keys: Iterable[BatchKey]) -> dict[BatchKey, int]:
    """The numbers of batches."""
    columns = list(batches.c[BATCH])
    found = bulk_insert.look_up(connection, sa.select(batches.c.id, *columns), columns, sorted(keys))
    return {key_of(row): row["id"] for row in found}


def _rows_of(connection: sa.Connection, groups: Sequence[SampledGroup]) -> list[int]:
    """The rows of the groups' batches; those that no store has read are looked up."""
    ids = ids_of(connection, {group.key for group in groups if group.row is None})
    return [ids[group.key] if group.row is None else group.row for group in groups]


def with_prompts(connection: sa.Connection, rule: Rule, run: int | None, older_than: datetime | None) -> Rule:
    """Attach to a rule of all signals the prompts that its run has read; other rules stay as they are.

    Raises `ValueError` where the record has others than the rule was made of.
    """
    if not isinstance(rule, Full) or run is None or older_than is None:
        return rule
    return remembered_prompts(rule, lambda: prompts_of_rule(rule, inputs_of(connection, run), older_than))


def remembered_prompts(rule: Full, read: Callable[[], Sequence[Prompts]]) -> Full:
    """Attach its prompts to a rule, which are read where they are not known by their digests. Raises `ValueError` for others."""
    wanted = tuple(one.rows for one in rule.fits)
    if (known := _PROMPTS.get(wanted)) is not None:
        return replace(rule, prompts=known)
    found = rule.with_prompts(read())
    assert found.prompts is not None
    _remember(_PROMPTS, wanted, found.prompts)
    return found


def losses_of(
    connection: sa.Connection,
    settings: GateSettings,
    rule: Rule,
    run: int | None,
    older_than: datetime | None,
) -> CalibrationLosses | None:
    """Read what a run's prompts lose by their scores; None where its gate does not cut one score at its budget."""
    if run is None or older_than is None or not cuts_at_budget(settings, rule):
        return None
    key = str(connection.engine.url), run, older_than
    if (known := _LOSSES.get(key)) is None:
        known = losses_by_score(settings, rule, inputs_of(connection, run), older_than)
        _remember(_LOSSES, key, known)
    return known


def bursts_of(
    connection: sa.Connection, settings: GateSettings, run: int | None, secret: bytes | None
) -> Bursts | None:
    """Read which bursts have a bad label among the prompts of a run; None where its gate ships whatever their burst."""
    if run is None or settings.group_by is None or not settings.calibrator.of_signals:
        return None
    key = str(connection.engine.url), run, secret
    if (known := _BURSTS.get(key)) is None:
        known = Bursts(settings.group_by, secret, bad_bursts(inputs_of(connection, run), b""))
        _remember(_BURSTS, key, known)
    return known


_BURSTS: dict[tuple[str, int, bytes | None], Bursts] = {}
"""By database, run and its secret."""
_LOSSES: dict[tuple[str, int, datetime], CalibrationLosses] = {}
"""By database, run and its `older_than`."""
_PROMPTS: dict[tuple[str, ...], tuple[Prompts, ...]] = {}
"""Prompts by their digests, which they cannot differ from."""
_REMEMBERED = 64


def _remember(known: dict[K, V], key: K, value: V) -> None:
    while len(known) >= _REMEMBERED:
        known.pop(next(iter(known)), None)
    known[key] = value


_OF_GROUP = ("probability", "draws", "segment", "decided_at", "signals", "bad", "burst", "spare")
_group, _item = itemgetter(*BATCH, *_OF_GROUP), itemgetter("response_id", "score", "severity")


def inputs_of(connection: sa.Connection, run: int) -> list[SampledGroup]:
    """What a stored run read, exactly, in order of decision and by response; nothing where there is no such run."""
    listed = connection.execute(
        sa.select(gate_revisions.c.signals)
        .join_from(calibration_runs, gate_revisions, REVISION_OF_RUN)
        .where(calibration_runs.c.id == run)
    ).scalar()
    signals, later = signals_of(None if listed is None else SignalList.of_text(listed).hash)
    query = (
        sa.select(
            *batches.c["id", *BATCH],
            decisions.c.decided_at,
            signals.label("signals"),
            *calibration_inputs.c["response_id", "score", "severity", "probability", "draws"],
            *calibration_inputs.c["segment", "bad", "burst", "spare"],
        )
        .select_from(DECIDED)
        .join(calibration_inputs, calibration_inputs.c.batch == batches.c.id)
        .outerjoin(later, later.c.batch == batches.c.id)
        .where(calibration_inputs.c.run == run)
        .order_by(decisions.c.decided_at, batches.c.id, calibration_inputs.c.response_id)
    )
    found = connection.execute(query).mappings().all()
    groups = []
    for _, rows in groupby(found, key=itemgetter("id")):
        first, *others = rows
        values = _group(first)
        groups.append(
            SampledGroup(
                key=BatchKey(*values[: len(BATCH)]),
                items=tuple(starmap(SampledItem, map(_item, (first, *others)))),
                **dict(zip(_OF_GROUP, values[len(BATCH) :], strict=True)),
            )
        )
    return groups
