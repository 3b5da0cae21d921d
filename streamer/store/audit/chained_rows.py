"""The record as evidence: every row of a log, with what its leaf covers, as plain JSON values.

It says what the tables say, and judges nothing: a row that is gone is None. Verifiers recompute the leaves and the
seals. The form is described in docs/audit.md.
"""

import base64
import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from functools import cached_property, partial
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import sqlalchemy as sa

from streamer.errors import Unavailable
from streamer.gates.rule import Full
from streamer.journal import Partition
from streamer.signing.canonical_json import canonical_json
from streamer.store.audit import control
from streamer.store.audit.given_out import all_given_out
from streamer.store.audit.heads import all_cosigned, all_heads, head_data, newest_signed, proof_of_head
from streamer.store.audit.input_evidence import scored_later
from streamer.store.audit.logged import LoggedRows
from streamer.store.audit.outcome_rows import OutcomeRows, pages
from streamer.store.audit.unchained import PLACE, not_in_outcomes, unchained
from streamer.store.db.engine import Database
from streamer.store.db.schema import (
    batches,
    calibration_runs,
    control_log,
    decisions,
    desk_outcomes,
    desk_texts,
    gate_revisions,
    gates,
    judgements,
    label_revisions,
    outcomes,
    policies,
    progress,
)
from streamer.store.db.schema.joins import BATCH
from streamer.store.db.schema.types import Row, no_evidence
from streamer.store.db.schema.views import latest
from streamer.store.labels.read_labels import ReadLabels
from streamer.store.labels.revisions import means
from streamer.store.log import leaves
from streamer.store.log.progress import in_partition, partition_heads
from streamer.store.policies.policy_rows import read_versions
from streamer_verify.segments import NO_SEGMENTS, Rows, Segments
from streamer_verify.values import given_out_of, line_of_segment
from streamer_verify.verifier import Verifier

_Others = Callable[[str | None], None] | None
_PAGE = 1_000
_place_of = itemgetter("log_id", "topic", "partition")
_TABLES = {table.name: table for table in control.SEALED_TABLES}


class ChainedRows:
    """Opens the record at one moment."""

    def __init__(self, database: Database, read: ReadLabels | None = None) -> None:
        self._database, self._read = database, read

    @contextmanager
    def snapshot(
        self, others: _Others = None, segments: Segments = NO_SEGMENTS
    ) -> "Iterator[ChainedRowsSnapshot]":
        """Everything read until the end is of one moment.

        `others` has other processes call `joined` with its argument. On SQLite writers wait for it.
        `segments` : have what was given out.
        """
        with self._of_one_moment(others) as connection:
            yield ChainedRowsSnapshot(connection, segments, self._read)

    @contextmanager
    def joined(self, moment: str | None, segments: Segments | None = None) -> "Iterator[ChainedRowsSnapshot]":
        """The record at the moment of another process's `snapshot`."""
        with self._database.reading(snapshot=True) as connection:
            if moment is not None:
                connection.exec_driver_sql(f"SET TRANSACTION SNAPSHOT '{moment}'")
            self._begun(connection)
            yield ChainedRowsSnapshot(connection, segments or NO_SEGMENTS)

    @contextmanager
    def logged(self) -> Iterator[LoggedRows]:
        """The same, by what the topics' own records are."""
        with self._of_one_moment() as connection:
            yield LoggedRows(connection)

    def given_out(self, since: datetime | None) -> list[str]:
        """Say which files have what was recorded since a moment and given out; None: ever."""
        with self._database.reading() as connection:
            return [
                f"{left_by(row)} undrawn decisions through {row['through']} are in {row['file']} alone"
                for row in all_given_out(connection).values()
                if since is None or row["through"] >= f"{since:%Y-%m}"
            ]

    def log_faults(self) -> list[str]:
        """Recompute the partitions' logs and the seals of texts, and say what does not fit, and where; nothing: all does."""
        verifier = _LogsAlone([], canonical=canonical_json)
        with self._database.reading(snapshot=True) as connection:
            rows = ChainedRowsSnapshot(connection)
            verifier.outcomes(rows.outcomes())
            verifier.heads(rows.head())
            verifier.unchained(row for row in not_in_outcomes(connection) if row["kind"] == decisions.name)
        return [f"{fault['place']}: {fault['detail']}" for fault in verifier.faults]

    @contextmanager
    def _of_one_moment(self, others: _Others = None) -> Iterator[sa.Connection]:
        control.chain_closings(self._database, wait=True)
        with ExitStack() as stack:
            if others is not None and self._database.sqlite:
                stack.enter_context(self._database.errors())
                stack.enter_context(self._database.engine.begin())  # keeps out whoever writes
            with self._database.reading(snapshot=True) as connection:
                if self._begun(connection):
                    said = "a gate was closed at this moment, which is not in the control log yet"
                    raise Unavailable(f"{said}; run this again")
                if others is not None:
                    query = sa.select(sa.func.pg_export_snapshot())
                    others(None if self._database.sqlite else connection.execute(query).scalar_one())
                stack.close()
                yield connection

    def _begun(self, connection: sa.Connection) -> bool:
        """Read for the first time: that is its moment. Returns whether a closing waits for its seal."""
        if not self._database.sqlite:
            # Between two pages texts may be scored again, for minutes; a reader holds no lock that others want.
            connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
        return control.is_waiting(connection)


class _LogsAlone(Verifier):
    """Reads of outcomes their leaves and seals alone."""

    def _decision(self, line: dict[str, Any], facts: dict[str, Any], place: str) -> None:
        self._seal_of_batch(line, facts, place)
        for one, words in zip(facts.get("judged", ()), line.get("judged", ()), strict=True):
            self._words(words, one["content_mac"], place, facts["batch"][0])

    def _how_far(self, *_: Any, **__: Any) -> None:
        """The control log is not read: neither what leaves saw of it, nor which erasures it has."""

    def _was_given_out(self, line: dict[str, Any]) -> bool:
        return "given_out" in line

    def _erased(self, *_: Any, **__: Any) -> None: ...

    def _label(self, *_: Any, **__: Any) -> None: ...


class ChainedRowsSnapshot:
    """The record at one moment, page by page; implements `streamer.audit.verification.Snapshot`. `read` : whose labels count."""

    def __init__(
        self, connection: sa.Connection, segments: Segments = NO_SEGMENTS, read: ReadLabels | None = None
    ) -> None:
        self._connection, self.segments, self._read = connection, segments, read

    @cached_property
    def _given_out(self) -> dict[tuple[int], dict[str, Any]]:
        return all_given_out(self._connection)

    def head(self) -> dict[str, Any]:
        try:
            head = control.head(self._connection)
        except sa.exc.NoResultFound:
            raise LookupError("the head of the control log is gone") from None
        return {
            "record_id": head.record_id.hex(),
            "control": head.as_said(),
            "partitions": partition_heads(self._connection),
        }

    def control(self, kind: str | None = None) -> Iterator[dict[str, Any]]:
        """Every leaf of the control log, or of one kind, with the row as its table has it now.

        ``row`` has the columns that were sealed; ``sealed`` stands beside it only where the two differ.
        """
        query = sa.select(control_log).order_by(control_log.c.leaf_index).limit(_PAGE)
        if kind is not None:
            query = query.where(control_log.c.kind == kind)
        index = -1
        while True:
            page = self._connection.execute(query.where(control_log.c.leaf_index > index)).mappings().all()
            if not page:
                return
            rows = self._rows_of(page)
            for entry in page:
                yield self._control_line(entry, rows.get((entry["kind"], entry["subject"])))
            index = page[-1]["leaf_index"]

    def outcomes(self) -> Iterator[dict[str, Any]]:
        for place in self._places():
            yield from self.within((place, 0, None))

    def ranges(self, after: Mapping[tuple[Any, ...], int], lines: int) -> Iterator[tuple[Any, ...]]:
        """Cut the logs into ranges of leaves: log, first, and one past the last or None."""
        sizes = {_place_of(one): one["size"] for one in partition_heads(self._connection)}
        for place in self._places():
            first = after.get(place, 0)
            ends = range(first + lines, sizes.get(place, 0), lines)
            for begin, end in pairwise((first, *ends, None)):
                yield place, begin, end

    def within(self, piece: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
        """The outcomes of one of `ranges`."""
        place, first, end = piece
        for page in pages(self._connection, Partition(*place), after=first, end=end):
            yield from self._lines(page)

    def _lines(self, page: Sequence[Row]) -> Iterator[dict[str, Any]]:
        about, given = OutcomeRows(self._connection, page), self._given_out
        return self.segments.filled((_outcome_line(row, about, given) for row in page), given)

    def _places(self) -> list[tuple[Any, ...]]:
        """Every log, in the order of `outcomes`."""
        named = sa.union(
            sa.select(progress.c.log_id, progress.c.topic, progress.c.partition),
            sa.select(outcomes.c.log_id, outcomes.c.topic, outcomes.c.partition),
        ).subquery()
        query = sa.select(named).order_by(named.c.log_id, named.c.topic, named.c.partition)
        return [tuple(place) for place in self._connection.execute(query)]

    def leaves(self, place: Sequence[Any], size: int) -> Sequence[bytes]:
        """The hashes of a log's first leaves; `place` is log id, topic and partition."""
        of_log = in_partition(Partition(*place[:3]), outcomes)
        query = sa.select(outcomes.c.leaf_hash).where(of_log, outcomes.c.leaf_index < size)
        return self._connection.execute(query.order_by(outcomes.c.leaf_index)).scalars().all()

    def heads(self, first: int = 0) -> Iterator[bytes]:
        """What each leaf of the log of heads is the hash of, from one on."""
        yield from all_heads(self._connection, first)

    def checkpoints(self) -> Iterator[bytes]:
        """The newest checkpoint, where there is one, and the newest that each witness has cosigned."""
        notes = [newest_signed(self._connection).note, *(one.note for one in all_cosigned(self._connection))]
        for note in filter(None, notes):
            yield canonical_json({"checkpoint": note.decode()})

    def unchained(self) -> Iterator[dict[str, Any]]:
        return unchained(self._connection)

    def not_evidence(self) -> dict[str, str]:
        return no_evidence()

    def scored_later(self) -> Iterator[dict[str, Any]]:
        yield from scored_later(self._connection)

    def decisions_of(
        self, batch_id: str, *, gate: str | None = None, attempt: int | None = None
    ) -> list[dict[str, Any]]:
        """Everything that is recorded of the decisions about a batch, by gate and attempt.

        Each has ``line`` (the outcome), ``policy`` and ``revision`` (rows),
        ``run`` (a row or None), ``deliveries`` (sources and kinds of later deliveries), ``labels`` (rows, the oldest
        first), ``severities`` (those that count, each with its response and kind), ``head`` (the oldest signed leaf of the log of heads that covers it, or None) and ``desk`` (what became of it at the desk, a row
        with its text as far as that is kept, or None) and ``spoke`` (how much each signal spoke for the answer, or None).
        """
        query = sa.select(batches).where(batches.c.batch_id == batch_id)
        if gate is not None:
            query = query.where(batches.c.gate == gate)
        if attempt is not None:
            query = query.where(batches.c.attempt == attempt)
        found = self._connection.execute(query.order_by(batches.c.gate, batches.c.attempt)).mappings().all()
        return [told for batch in found if (told := self._told(batch)) is not None]

    def _told(self, batch: Row) -> dict[str, Any] | None:
        about, decided = outcomes.c.batch == batch["id"], outcomes.c.kind == "decision"
        found = self._connection.execute(sa.select(outcomes).where(about, decided))
        if (row := found.mappings().one_or_none()) is None:
            return None
        partition = Partition(row["log_id"], row["topic"], row["partition"])
        (line,) = self._lines([row])
        head = self._covering(partition, row["leaf_index"])
        if line["facts"] is None:
            return {"line": line, "head": head, "batch": [batch[name] for name in BATCH]}
        version = line["facts"]["policy"]
        sealed = partial(control.sealed_rows, self._connection)
        (policy,) = sealed(policies, [(batch["gate"], version)])
        (revision,) = sealed(gate_revisions, [(batch["gate"], policy["gate_revision"])])
        runs = [(policy["calibration_run"],)] if policy["calibration_run"] is not None else []
        deliveries = (
            sa.select(*outcomes.c[*PLACE, "kind", "recorded_at"])
            .where(about, ~decided)
            .order_by(outcomes.c.recorded_at)
        )
        return {
            "line": line,
            "policy": policy,
            "revision": revision,
            "run": next(iter(sealed(calibration_runs, runs)), None),
            "deliveries": [
                {"source": list(source), "kind": kind, "recorded_at": leaves.instant(at)}
                for *source, kind, at in self._connection.execute(deliveries)
            ],
            "labels": [
                control.seal(label_revisions, label)
                for label in self._about(label_revisions, batch, label_revisions.c.id)
            ],
            "severities": self._severities_of(batch),
            "head": head,
            "desk": self._desk_of(batch),
            "spoke": self._spoke(batch["gate"], version, line["facts"]),
        }

    def _severities_of(self, batch: Row) -> list[dict[str, Any]]:
        labels = label_revisions if self._read is None else self._read.table(self._connection, batch["gate"])
        found = latest(labels, *(labels.c[name] == batch[name] for name in BATCH))
        rows = self._connection.execute(sa.select(*found.c["response_id", "kind", "severity"]))
        return [
            {"response_id": response, "kind": kind, "severity": severity}
            for (response, kind), severity in sorted(means(rows).items())
        ]

    def _about(self, table: sa.Table, batch: Row, order: sa.Column[Any]) -> Sequence[Row]:
        """The rows of a table that name a batch by gate, id and attempt."""
        of_batch = (table.c[name] == batch[name] for name in BATCH)
        query = sa.select(table).where(*of_batch).order_by(order)
        return self._connection.execute(query).mappings().all()

    def _spoke(self, gate: str, version: int, facts: dict[str, Any] | None) -> dict[str, float] | None:
        """By how much each signal spoke for the answer (above 0) or against it; None where signals did not decide."""
        (found,) = read_versions(self._connection, [(gate, version)])
        policy = None if found.active is None else found.active.policy
        if facts is None or policy is None or not isinstance(policy.rule, Full) or not policy.rule.prompts:
            return None
        row, signals = facts.get("signals"), policy.settings.signal_list
        if row is None or signals is None or "budget" not in facts:
            return None
        values = policy.rule.prompts[0].spoke(np.frombuffer(bytes.fromhex(row), "<f4"))
        return dict(zip(signals.titles, values.tolist(), strict=True))

    def _desk_of(self, batch: Row) -> dict[str, Any] | None:
        found = next(iter(self._about(desk_outcomes, batch, desk_outcomes.c.id)), None)
        return None if found is None else control.seal(desk_outcomes, found) | self._desk_text(found["id"])

    def _covering(self, partition: Partition, index: int) -> dict[str, Any] | None:
        """The oldest head under the newest checkpoint that covers a leaf of a partition: logs only grow."""

        def head(at: int) -> dict[str, Any]:
            found: dict[str, Any] = json.loads(head_data(self._connection, at) or b"")
            return found

        def size(at: int) -> int:
            return sum(one["size"] for one in head(at)["partitions"] if _place_of(one) == partition)

        signed = newest_signed(self._connection).size
        with suppress(ValueError, KeyError, TypeError):  # verification names it
            at = bisect_left(range(signed), index + 1, key=size)
            return None if at == signed else head(at)
        return None

    def proof_of_head(self, index: int) -> dict[str, Any]:
        """Prove that a checkpoint covers a head, by one that witnesses have cosigned where there is one."""
        return proof_of_head(self._connection, index)

    def _rows_of(self, page: Sequence[Row]) -> dict[tuple[str, str], dict[str, Any]]:
        """The tables' rows that a page of entries is about, by table and subject, as they would be sealed today."""
        keys: dict[str, list[tuple[Any, ...]]] = {}
        for entry in page:
            table = _TABLES.get(entry["kind"])
            if table is not None and (key := _key(table, entry["subject"])) is not None:
                keys.setdefault(table.name, []).append(key)
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for kind, some in keys.items():
            table = _TABLES[kind]
            # What a run kept is read with its line, by the columns that its seal names.
            for row in control.sealed_rows(self._connection, table, some, parts=False):
                found[kind, control.subject_of(table, row)] = row
        return found

    def _control_line(self, entry: Row, row: dict[str, Any] | None) -> dict[str, Any]:
        line, sealed = _leaf(entry), _sealed(entry["sealed"])
        if row is not None and entry["kind"] == calibration_runs.name:
            for part in control.RUN_PARTS:
                columns = control.part_columns(part)
                if sealed is not None:
                    columns = _columns(sealed.get(part), columns)
                rows = control.run_part(self._connection, part, row["id"])
                row[part] = control.digest_of(columns, rows)
                if sealed is not None:
                    line[part] = rows
        if row is not None and sealed is not None:
            # A column that is younger than the seal is not in it.
            row = {name: row[name] for name in row if name in sealed}
        line["row"] = row
        if sealed != row:
            line["sealed"] = sealed
        if row is None:
            return line
        if entry["kind"] == gates.name:
            salt = sa.select(gates.c.audit_salt).where(gates.c.name == row["name"])
            line["audit_salt"] = self._connection.execute(salt).scalar_one().hex()
        elif entry["kind"] == desk_outcomes.name:
            gone = {"missing": "its text"} if row["action"] == "released" else {}
            line |= self._desk_text(row["id"]) or gone
        elif entry["kind"] == judgements.name:
            query = sa.select(judgements).where(judgements.c.id == row["id"])
            line |= _words(self._connection.execute(query).mappings().one())
        return line

    def _desk_text(self, outcome: str) -> dict[str, Any]:
        """The text that was released, as far as there is one and it is kept."""
        query = sa.select(desk_texts).where(desk_texts.c.outcome == outcome)
        found = self._connection.execute(query).mappings().one_or_none()
        if found is None:
            return {}
        if found["salt"] is None:
            return {"erased_at": leaves.instant(found["erased_at"])}
        return {"content": {"text": found["text"], "salt": found["salt"].hex()}}


def left_by(row: Row) -> int:
    """How many decisions left by a row of `give_outs`."""
    return sum(count for *_, count, _, _ in given_out_of(row["logs"]).values())


def _leaf(entry: Row) -> dict[str, Any]:
    """What stands in a log of one leaf."""
    return {
        "index": entry["leaf_index"], "kind": entry["kind"], "recorded_at": leaves.instant(entry["recorded_at"]),
        "leaf": entry["leaf_hash"].hex(), "root": entry["root"].hex(),
    }  # fmt: skip


def _outcome_line(row: Row, about: OutcomeRows, given_out: Rows) -> dict[str, Any]:
    line = _leaf(row) | {"source": [row["log_id"], row["topic"], row["partition"], row["offset"]]}
    try:
        facts = about.facts(row)
        return line | {"facts": facts} | _covered(row, about, judged="judged" in facts)
    except LookupError as error:
        gone = row["kind"] == "decision" and row["batch"] not in about.decisions
        for (number,), one in given_out.items() if gone else ():
            if line_of_segment(one["logs"], line) is not None:
                missing = f"it was given out in {one['file']}, SHA-256 {one['sha256']}"
                batch = about.batches.get(row["batch"])
                key = {} if batch is None else {"batch": [batch[name] for name in BATCH]}
                return line | {"facts": None, "missing": missing, "given_out": number} | key
        return line | {"facts": None, "missing": str(error.args[0])}
    except (AttributeError, TypeError, ValueError) as error:
        # SQLite stores a value of any type in any column.
        return line | {"facts": None, "missing": f"a value that cannot be read: {error}"}


def _covered(row: Row, about: OutcomeRows, *, judged: bool) -> dict[str, Any]:
    """What stands behind an outcome's digests: texts, a judge's words, the message that was sent, the bytes that were refused."""
    line: dict[str, Any] = {}
    if row["kind"] == "decision":
        batch, decision = about.batches[row["batch"]], about.decisions[row["batch"]]
        if batch["salt"] is not None:
            line["content"] = {
                "content_hash": batch["content_hash"].hex(), "prompt": batch["prompt"],
                "references": batch["references"], "metadata": batch["metadata"],
                "texts": list(about.responses[row["batch"]]["text"]), "salt": batch["salt"].hex(),
            }  # fmt: skip
        else:
            line["erased_at"] = leaves.instant(batch["erased_at"])
        if judged:
            line["judged"] = [_words(one) for one in about.judged[row["batch"]]]
        line["action"] = {
            "topic": decision["action_topic"], "key": _base64(decision["action_key"]),
            "value": _base64(decision["action_value"]), "headers": decision["action_headers"],
        }  # fmt: skip
    letter = about.letters.get(row["dead_letter"])
    if letter is not None and letter["salt"] is None:
        line["erased_at"] = leaves.instant(letter["erased_at"])
    elif letter is not None:
        line["content"] = {
            "key": _base64(letter["key"]), "value": _base64(letter["value"]),
            "headers": letter["headers"], "detail": letter["detail"], "salt": letter["salt"].hex(),
        }  # fmt: skip
    if row["kind"] == "label":
        line["effective_at"] = leaves.instant(about.labels[row["label"]]["effective_at"])
    return line


def _words(judgement: Row) -> dict[str, Any]:
    """What a judge was asked and said, or when that was erased."""
    if judgement["salt"] is None:
        erased = leaves.instant(judgement["erased_at"])
        return {} if erased is None else {"erased_at": erased}
    return {"content": {"exchanges": judgement["exchanges"], "salt": judgement["salt"].hex()}}


def _key(table: sa.Table, subject: str) -> tuple[Any, ...] | None:
    values = _read(subject)
    fits = isinstance(values, list) and len(values) == len(table.primary_key.columns)
    return tuple(values) if fits else None


def _sealed(text: str) -> dict[str, Any] | None:
    read = _read(text)
    return read if isinstance(read, dict) else None


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _columns(digest: Any, today: list[str]) -> list[str]:
    """The columns that a seal says it covers, as far as there are such columns."""
    said = digest.get("columns") if isinstance(digest, dict) else None
    return [name for name in said if name in today] if isinstance(said, list) else today


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")
