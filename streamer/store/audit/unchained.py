"""Rows, or columns of rows, that belong to no log, or contradict it: somebody wrote them without the program."""

from collections.abc import Iterable, Iterator
from typing import Any

import sqlalchemy as sa

from streamer.events.topics import HTTP_LOG
from streamer.scoring.scorers.judge import Judge
from streamer.signing.canonical_json import canonical_json
from streamer.store.audit import control
from streamer.store.audit.input_evidence import gone_from_the_desk
from streamer.store.db.schema import (
    batches,
    control_log,
    dead_letter_replays,
    dead_letters,
    decisions,
    desk_items,
    desk_texts,
    erasures,
    give_outs,
    judgements,
    label_revisions,
    label_signatures,
    outcomes,
    responses,
)
from streamer.store.db.schema.joins import BATCH, same

PLACE = ("log_id", "topic", "partition", "offset")


def unchained(connection: sa.Connection) -> Iterator[dict[str, Any]]:
    """Rows, or columns of them, that belong to no log, or contradict it: somebody wrote them without the program."""
    sealed = {tuple(row) for row in connection.execute(sa.select(control_log.c.kind, control_log.c.subject))}
    for table in control.SEALED_TABLES:
        for row in connection.execute(control.keys_to_seal(table)).mappings():
            subject = control.subject_of(table, row)
            if (table.name, subject) not in sealed:
                yield {"kind": table.name, "subject": subject}
    yield from not_in_outcomes(connection)


def not_in_outcomes(connection: sa.Connection) -> Iterator[dict[str, Any]]:
    """Rows that should belong to the partitions' logs, and do not, or contradict them."""
    # NOT IN: SQLite looks its list up in an index that it makes once; of NULLs there must be none.
    decided = sa.select(outcomes.c.batch).where(outcomes.c.kind == "decision", outcomes.c.batch.is_not(None))
    # Each of these says beside its outcome where and when it came; a label that came again has an outcome more.
    letter, label, signature = dead_letters.c, label_revisions.c, label_signatures.c
    place = [letter[name] == outcomes.c[name] for name in (*PLACE, "recorded_at")]
    refused = sa.select(letter.id).join_from(dead_letters, outcomes, outcomes.c.dead_letter == letter.id)
    labelled = sa.select(label.id).join_from(label_revisions, outcomes, outcomes.c.label == label.id)
    signed = sa.select(signature.id).join_from(
        label_signatures, outcomes, outcomes.c.label_signature == signature.id
    )
    by = sa.case((outcomes.c.log_id == HTTP_LOG, HTTP_LOG), else_=control.TOPIC_SOURCE)
    queries: dict[str, sa.Select[Any]] = {
        "decisions": sa.select(*batches.c[BATCH]).where(batches.c.id.not_in(decided)).order_by(batches.c.id),
        "judgements": sa.select(judgements.c.id)
        .select_from(
            sa.outerjoin(
                judgements,
                batches,
                same(judgements, batches, *BATCH)
                & batches.c.id.in_(decided)
                & batches.c.id.in_(sa.select(decisions.c.batch).where(decisions.c.scorer == Judge.name)),
            )
        )
        .where(judgements.c.for_score, batches.c.id.is_(None) | judgements.c.label.is_not(None))
        .order_by(judgements.c.id),
        "dead_letters": sa.select(*dead_letters.c[PLACE])
        .where(letter.id.not_in(refused.where(*place)))
        .order_by(letter.id),
        "label_revisions": sa.select(label.id)
        .where(
            label.source.in_(control.LOGGED_SOURCES),
            label.id.not_in(labelled.where(label.received_at == outcomes.c.recorded_at, by == label.source))
            # no event has these, and no leaf covers the second
            | label.raw_severity.is_not(None)
            | label.remark.is_not(None),
        )
        .order_by(label.id),
        "label_signatures": sa.select(signature.id)
        .where(
            signature.source.in_(control.LOGGED_SOURCES),
            signature.id.not_in(
                signed.where(
                    signature.received_at == outcomes.c.recorded_at,
                    signature.label == outcomes.c.label,
                    by == signature.source,
                )
            ),
        )
        .order_by(signature.id),
    }
    replayed = dead_letters.name, _said_of_replays()
    for kind, query in (*queries.items(), *_other_forms(), *_erased_otherwise(), replayed):
        for row in connection.execute(query):
            yield _named(kind, row)
    for batch in gone_from_the_desk(connection):
        yield _named(desk_items.name, batch)


def _said_of_replays() -> sa.Select[Any]:
    """Messages that contradict the newest sealed replay about when and by whom they were sent again."""
    letter, replay = dead_letters.c, dead_letter_replays.c
    newest = sa.select(sa.func.max(replay.id).label("id")).group_by(replay.dead_letter).subquery()
    last = (
        sa.select(replay.dead_letter, replay.at, replay.by).join(newest, newest.c.id == replay.id).subquery()
    )
    return (
        sa.select(*dead_letters.c[PLACE])
        .join_from(dead_letters, last, last.c.dead_letter == letter.id, isouter=True)
        .where(
            letter.replayed_at.is_distinct_from(last.c.at) | letter.replayed_by.is_distinct_from(last.c.by)
        )
        .order_by(letter.id)
    )


def _other_forms() -> Iterator[tuple[str, sa.Select[Any]]]:
    """Rows that have what no log reads of their kind: what belongs to other kinds, or is a copy of what is elsewhere."""
    own, batch = outcomes.c, outcomes.c.kind.in_(("decision", "duplicate", "conflict"))
    refers = (
        (own.batch, batch),
        (own.dead_letter, own.kind.in_(("conflict", "dead_letter"))),
        (own.label, own.kind == "label"),
        (own.label_signature, own.kind == "label"),
    )
    wrong = sa.or_(*(column.is_not(None) & ~kind for column, kind in refers))
    place = own[PLACE]
    yield outcomes.name, sa.select(*place).where(wrong).order_by(*place)
    other_gate = sa.select(*batches.c[BATCH]).join(
        decisions, (decisions.c.batch == batches.c.id) & (decisions.c.gate != batches.c.gate)
    )
    yield decisions.name, other_gate.order_by(batches.c.id)


def _erased_otherwise() -> Iterator[tuple[str, sa.Select[Any] | sa.CompoundSelect[Any]]]:
    """Rows that are not erased as erasures leave them: whole, and at the moment of one on record that allowed it."""
    decided = sa.select(decisions.c.decided_at).where(decisions.c.batch == batches.c.id).scalar_subquery()
    for table, moment, *content in (
        (batches, decided, "prompt", "references", "metadata", "content_hash", "salt"),
        (dead_letters, dead_letters.c.recorded_at, "detail", "key", "value", "headers", "salt"),
        (desk_texts, sa.null(), "text", "salt"),
        (judgements, judgements.c.judged_at, "exchanges", "salt"),
    ):
        (key,), erased = table.primary_key.columns, table.c.erased_at
        there = sa.or_(*(table.c[name].is_not(None) for name in content))
        if table is batches:
            there |= sa.exists().where(responses.c.batch == key, responses.c.text.is_not(None))
        yield f"{table.name}.erased_at", sa.select(key).where(erased.is_not(None), there).order_by(key)
        unsaid = sa.select(key).where(erased.is_(None), table.c.salt.is_(None))
        without_erasure = (
            sa.select(key)
            .outerjoin(erasures, erasures.c.at == erased)
            .where(erased.is_not(None), erasures.c.id.is_(None) | (moment >= erasures.c.before))
        )
        if table is batches:
            left = sa.exists().where(give_outs.c.at == erased) & decided.is_(None)
            without_erasure = without_erasure.where(~left)
        if table is judgements:
            # Where a gate keeps no texts, its judge's words are erased when they come.
            came = sa.exists().where(
                same(batches, judgements, *BATCH),
                outcomes.c.batch == batches.c.id,
                outcomes.c.kind == "decision",
                outcomes.c.recorded_at == erased,
            )
            without_erasure = without_erasure.where(~(table.c.for_score & came))
        yield table.name, unsaid.union_all(without_erasure).order_by(key.name)


def _named(kind: str, key: Iterable[Any]) -> dict[str, str]:
    return {"kind": kind, "subject": canonical_json(list(key)).decode()}
