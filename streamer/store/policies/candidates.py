"""Candidate policies: who set one and when, sealed in the control log, and what they made of batches, in no log."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import sqlalchemy as sa

from streamer.calibration.full_fit import Prompts
from streamer.errors import UsageError
from streamer.gates.batch_key import BatchKey
from streamer.gates.policy import CandidateDecision, CandidatePolicy, MadeBeside
from streamer.gates.rule import INDICATOR, Cut, Full, Needed, Rule
from streamer.gates.settings import GateSettings
from streamer.lazy import LazyLogger
from streamer.store.audit import control
from streamer.store.calibration.audit_sample import in_revisions
from streamer.store.calibration.run_rows import ids_of, remembered_prompts
from streamer.store.db import bulk_insert
from streamer.store.db.schema import (
    batches,
    candidate_decisions,
    candidate_policies,
    candidate_prompts,
    decisions,
    responses,
)
from streamer.store.db.schema.joins import ANSWERED
from streamer.store.db.schema.types import Row, of_row
from streamer.store.part import Part

log = LazyLogger(__name__)

_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError)
"""What reading a row may raise that this version of the program did not write."""

_PAGE = 5_000


def newest_candidates(
    connection: sa.Connection, gates: Sequence[str] | None = None
) -> dict[str, CandidatePolicy]:
    """The newest line of each gate's story of candidates (of all gates when None).

    One that cannot be read is left out: whatever is wrong with a candidate, the policies are decided by.
    """
    newest = sa.select(sa.func.max(candidate_policies.c.id)).group_by(candidate_policies.c.gate)
    if gates is not None:
        newest = newest.where(candidate_policies.c.gate.in_(list(gates)))
    try:
        return {one.gate: one for one in _read(connection, candidate_policies.c.id.in_(newest))}
    except _UNREADABLE:
        found = {}
        for number in connection.execute(newest).scalars().all():
            try:
                (one,) = _read(connection, candidate_policies.c.id == number)
            except _UNREADABLE as error:
                log.warning("store.candidate_unreadable", candidate=number, error=str(error))
            else:
                found[one.gate] = one
        return found


class Candidates(Part):
    """Sets, stops and reads them; implements `streamer.whatif.asking.CandidateRecord`."""

    def start(
        self,
        gate: str,
        settings: GateSettings,
        *,
        cut: Cut | None = None,
        rule: Rule = INDICATOR,
        guarantee: str = "",
        by: str,
        reason: str,
    ) -> CandidatePolicy:
        """Make this the gate's candidate; workers take it up within seconds. What an earlier one made of batches stays.

        A rule of all signals comes with its prompts, which are kept.
        """
        return self._write(
            gate,
            {
                "settings": settings.flat(),
                "state": None if cut is None else cut.state,
                "threshold": None if cut is None else cut.threshold,
                "rule": rule,
                "guarantee": guarantee,
            },
            by=by,
            reason=reason,
        )

    def stop(self, gate: str, *, by: str, reason: str) -> CandidatePolicy:
        """End the gate's candidate; returns the one that it was. Raises `UsageError` where there is none."""
        present, _ = self.present(gate)
        self._write(
            gate,
            {"settings": None, "state": None, "threshold": None, "rule": INDICATOR, "guarantee": ""},
            by=by,
            reason=reason,
        )
        return present

    def _write(self, gate: str, values: dict[str, Any], *, by: str, reason: str) -> CandidatePolicy:
        now = self._clock()

        def work(connection: sa.Connection) -> CandidatePolicy:
            row = values | {"gate": gate, "by": by, "reason": reason, "at": now}
            (number,) = control.insert(connection, candidate_policies, row, now=now)
            if isinstance(row["rule"], Full):
                bulk_insert.append(
                    connection, candidate_prompts, _prompt_rows(connection, gate, number, row["rule"])
                )
            (written,) = _read(connection, candidate_policies.c.id == number)
            return written

        return self._database.writing(work)

    def newest(self, gate: str) -> CandidatePolicy | None:
        """The gate's candidate; None where it has none."""
        with self._database.reading() as connection:
            found = newest_candidates(connection, [gate]).get(gate)
        return found if found is not None and found.settings is not None else None

    def present(self, gate: str) -> tuple[CandidatePolicy, GateSettings]:
        """The same with its settings. Raises `UsageError` where it has none."""
        found = self.newest(gate)
        if found is None or found.settings is None:
            raise UsageError(
                f"gate {gate!r} has no candidate policy; `streamer candidate set {gate}` gives it one"
            )
        return found, found.settings

    def story(self, gate: str) -> list[CandidatePolicy]:
        """Every line about the gate's candidates, the oldest first."""
        return self._database.read(_read, candidate_policies.c.gate == gate)

    def counts(self, candidate: int) -> dict[str | None, int]:
        """How many decisions a candidate was beside, by the reason why it has no scores; None: it has some."""
        query = (
            sa.select(candidate_decisions.c.why, sa.func.count().label("decisions"))
            .where(candidate_decisions.c.candidate == candidate)
            .group_by(candidate_decisions.c.why)
        )
        return {row.why: row.decisions for row in self._database.rows(query)}

    def drawn(self, gate: str, settings: GateSettings) -> tuple[Mapping[int, set[str]], Iterator[MadeBeside]]:
        """First attempts that the audit drew and another score, or list of signals, decided, with the responses that it drew, and
        what `made` has of them."""
        query = (
            sa.select(decisions.c.batch, responses.c.response_id)
            .select_from(ANSWERED)
            .where(
                decisions.c.gate == gate,
                decisions.c.sampled,
                responses.c.drawn,
                batches.c.attempt == 1,
                (decisions.c.scorer != settings.scorer) | ~in_revisions(gate, signals=settings.signals),
            )
        )
        with self._database.reading() as connection:
            asked: dict[int, set[str]] = {}
            for number, response in connection.execute(query):
                asked.setdefault(number, set()).add(response)
        return asked, self.made(gate, settings, list(asked))

    def made(self, gate: str, settings: GateSettings, numbers: Sequence[int]) -> Iterator[MadeBeside]:
        alike = [
            one.number
            for one in self.story(gate)
            if one.settings is not None and one.settings.scored_by == settings.scored_by
        ]
        query = sa.select(
            *candidate_decisions.c[
                "batch", "candidate", "scores", "shipped", "why", "signals", "budget_count", "budget_groups"
            ]
        ).where(candidate_decisions.c.candidate.in_(alike))
        ids = sa.select(responses.c.batch, responses.c.position, responses.c.response_id)
        wanted = sorted(numbers)
        for start in range(0, len(wanted) if alike else 0, _PAGE):
            keys = [(number,) for number in wanted[start : start + _PAGE]]
            with self._database.reading() as connection:
                found = bulk_insert.look_up_rows(connection, query, [candidate_decisions.c.batch], keys)
                named = bulk_insert.look_up_rows(
                    connection, ids, [responses.c.batch], [(row[0],) for row in sorted(found)]
                )
            ids_of = {
                batch: tuple(row[2] for row in rows) for batch, rows in groupby(sorted(named), itemgetter(0))
            }
            for batch, number, scores, shipped, why, signals, count, groups in sorted(
                found, key=itemgetter(0)
            ):
                decision = CandidateDecision(
                    number,
                    None if scores is None else tuple(map(float, scores)),
                    None if shipped is None else tuple(map(bool, shipped)),
                    why,
                    signals,
                    None if count is None else Needed(count, groups),
                )
                yield MadeBeside(batch, ids_of.get(batch, ()), decision)


def _read(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> list[CandidatePolicy]:
    query = sa.select(candidate_policies).where(condition).order_by(candidate_policies.c.id)
    return [_candidate(connection, row) for row in connection.execute(query).mappings().all()]


def _prompt_rows(connection: sa.Connection, gate: str, number: int, rule: Full) -> list[dict[str, Any]]:
    if rule.prompts is None:
        raise ValueError("a candidate of all signals needs its prompts")
    (prompts,) = rule.prompts
    keys = [
        BatchKey(gate, batch, int(attempt))
        for batch, _, attempt in (name.rpartition("#") for name in prompts.ids)
    ]
    ids = ids_of(connection, keys)
    segments = prompts.segments or (None,) * len(keys)
    return [
        {"candidate": number, "place": place, "batch": ids[key], "signals": row.astype("<f4").tobytes(), "bad": bad, "segment": segment}
        for place, (key, row, bad, segment) in enumerate(zip(keys, prompts.rows, prompts.bad.tolist(), segments, strict=True))
    ]  # fmt: skip


def _prompts(connection: sa.Connection, number: int) -> list[Prompts]:
    query = (
        sa.select(*batches.c["batch_id", "attempt"], *candidate_prompts.c["signals", "bad", "segment"])
        .join_from(candidate_prompts, batches, batches.c.id == candidate_prompts.c.batch)
        .where(candidate_prompts.c.candidate == number)
        .order_by(candidate_prompts.c.place)
    )
    rows = connection.execute(query).all()
    segments = tuple(row.segment for row in rows)
    signals = np.frombuffer(b"".join(row.signals for row in rows), "<f4").reshape(len(rows), -1)
    ids = tuple(f"{row.batch_id}#{row.attempt}" for row in rows)
    return [
        Prompts(ids, signals, np.array([row.bad for row in rows]), None if None in segments else segments)
    ]


def _candidate(connection: sa.Connection, row: Row) -> CandidatePolicy:
    rule = row["rule"]
    if isinstance(rule, Full):
        row = {**row, "rule": remembered_prompts(rule, lambda: _prompts(connection, row["id"]))}
    return of_row(
        CandidatePolicy,
        row,
        number=row["id"],
        settings=None if row["settings"] is None else GateSettings(**row["settings"]),
        cut=None if row["state"] is None else Cut(row["state"], row["threshold"]),
    )
