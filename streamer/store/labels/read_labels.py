"""Which labels are read: the one place between the labels that are recorded and everything that uses them.

A gate may name its labellers and may demand signatures. What it says is taken from its newest policy that is trusted
here, and signatures are verified here, each once in a process: a row that somebody wrote into the database is worth no
more than one that came by the topic.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from streamer.journal import LabelRevision
from streamer.labels.signing import NO_LABEL_KEYS, LabelKeys
from streamer.signing.policies import PolicyVersion
from streamer.store.audit import control
from streamer.store.db import bulk_insert
from streamer.store.db.schema import label_revisions, label_signatures
from streamer.store.db.schema.joins import key_of
from streamer.store.db.schema.types import Row, of_row
from streamer.store.policies.policy_rows import from_newest, newest_keys, read_versions


class Demands(NamedTuple):
    """Whose labels a gate reads (None: everybody's), and whether they must be signed."""

    labellers: tuple[str, ...] | None
    signed: bool


_NOBODY = Demands((), signed=True)
"""Of a gate none of whose policies is trusted: nobody knows whose labels it reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadLabels:
    """Labels of a gate that are recorded and not read: by `others` than the labellers that it
    reads, and `unsigned`, by these without a signature that is good here."""

    others: int = 0
    unsigned: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.others + self.unsigned


class ReadLabels:
    """Gives the labels that are read as a table. Thread-safe. `trusts` says whether a policy may
    be obeyed; signatures are verified by `keys`."""

    def __init__(self, trusts: Callable[[PolicyVersion], bool], keys: LabelKeys = NO_LABEL_KEYS) -> None:
        self._trusts = trusts
        self.keys = keys
        self._demands: dict[str, tuple[int, Demands]] = {}
        self._good: dict[int, bool] = {}
        self._lock = threading.Lock()

    def table(self, connection: sa.Connection, gate: str | None = None) -> sa.FromClause:
        """Return what has the columns of `label_revisions`, and of one gate (of all when None) only what is read."""
        demands = self.demands(connection, gate)
        named = {name: one.labellers for name, one in demands.items() if one.labellers is not None}
        signed = sorted(name for name, one in demands.items() if one.signed)
        if not named and not signed:
            return label_revisions
        dialect, labels = connection.dialect.name, label_revisions.c
        query = sa.select(label_revisions)
        if named:
            pairs = [(name, labeller) for name, names in sorted(named.items()) for labeller in names]
            query = query.where(
                labels.gate.not_in(_values(dialect, sorted(named), sa.Text()))
                | sa.tuple_(labels.gate, labels.labeller).in_(_pairs(dialect, pairs))
            )
        if signed:
            good = [number for name in signed for number in self._signed_well(connection, name)]
            query = query.where(
                labels.gate.not_in(_values(dialect, signed, sa.Text()))
                | labels.id.in_(_values(dialect, good, sa.BigInteger()))
            )
        return query.subquery("read_labels")

    def demands(self, connection: sa.Connection, gate: str | None = None) -> Mapping[str, Demands]:
        """Say whose labels a gate reads, or every gate, by the newest policy that is trusted; by name."""
        keys = newest_keys(connection, None if gate is None else [gate])
        with self._lock:
            unknown = [key for key in keys if self._demands.get(key[0], (0,))[0] != key[1]]
        for found in read_versions(connection, unknown):
            demands = next(
                (_demands_of(one) for one in from_newest(connection, found) if self._good_policy(one)),
                _NOBODY,
            )
            with self._lock:
                self._demands[found.gate] = (found.version, demands)
        with self._lock:
            return {name: self._demands[name][1] for name, _ in keys}

    def unread(self, connection: sa.Connection, gate: str | None = None) -> dict[str, UnreadLabels]:
        """Count the labels of a gate that are not read, or of every gate that has any; by name."""
        result = {}
        labels = label_revisions.c
        for name, demands in self.demands(connection, gate).items():
            if demands.labellers is None and not demands.signed:
                continue
            every = sa.select(sa.func.count()).where(labels.gate == name)
            recorded = connection.execute(every).scalar_one()
            named = recorded
            if demands.labellers is not None:
                named = connection.execute(every.where(labels.labeller.in_(demands.labellers))).scalar_one()
            table = self.table(connection, name)
            read = connection.execute(
                sa.select(sa.func.count()).select_from(table).where(table.c.gate == name)
            ).scalar_one()
            found = UnreadLabels(others=recorded - named, unsigned=named - read)
            if found.total:
                result[name] = found
        return result

    def refusals(self, connection: sa.Connection, labeller: str, gates: Sequence[str]) -> dict[str, str]:
        """Say of which of these gates labels that this labeller gives here would not be read, and why."""
        result = {}
        every = self.demands(connection)
        for name in gates:
            demands = every.get(name)
            if demands is None:
                continue
            if demands.labellers is not None and labeller not in demands.labellers:
                names = ", ".join(demands.labellers) or "nobody"
                result[name] = f"gate {name} reads labels by {names}, not by {labeller}"
            elif demands.signed and labeller not in self.keys.signs_well_for:
                result[name] = (
                    f"gate {name} reads signed labels alone, and there is no key here that signs for {labeller}"
                    " (STREAMER_LABELS_PRIVATE_KEYS_FILE)"
                )
        return result

    def unread_among(self, connection: sa.Connection, rows: Sequence[Row]) -> dict[str, UnreadLabels]:
        """Count those of these rows of `label_revisions` that are not read; by gate."""
        result = {}
        for name in sorted({row["gate"] for row in rows}):
            table = self.table(connection, name)
            if table is label_revisions:
                continue
            of_gate = {row["id"]: row["labeller"] for row in rows if row["gate"] == name}
            read = bulk_insert.look_up(
                connection, sa.select(table.c.id), [table.c.id], [(number,) for number in of_gate]
            )
            left = of_gate.keys() - {row["id"] for row in read}
            named = self.demands(connection, name)[name].labellers
            others = sum(named is not None and of_gate[number] not in named for number in left)
            if left:
                result[name] = UnreadLabels(others=others, unsigned=len(left) - others)
        return result

    def _good_policy(self, found: PolicyVersion) -> bool:
        return found.active is not None and self._trusts(found)

    def _signed_well(self, connection: sa.Connection, gate: str) -> list[int]:
        """Number the labels of a gate that their labellers have signed. Every signature is verified once."""
        signatures = label_signatures.c
        listed = connection.execute(
            sa.select(signatures.id, signatures.label)
            .join(label_revisions, label_revisions.c.id == signatures.label)
            .where(label_revisions.c.gate == gate)
        ).all()
        with self._lock:
            unknown = [row.id for row in listed if row.id not in self._good]
        if unknown:
            found = self._verified(connection, unknown)
            with self._lock:
                self._good |= found
        with self._lock:
            return sorted({row.label for row in listed if self._good.get(row.id, False)})

    def _verified(self, connection: sa.Connection, numbers: Sequence[int]) -> dict[int, bool]:
        record_id = control.head(connection).record_id
        signature = label_signatures.c
        query = sa.select(
            signature.id.label("number"), signature.signature, signature.key_id, label_revisions
        ).join(label_revisions, label_revisions.c.id == signature.label)
        return {
            row["number"]: self.keys.verifies(_label_of(row), record_id=record_id)
            for row in bulk_insert.look_up(
                connection, query, [signature.id], [(number,) for number in numbers]
            )
        }


def _demands_of(found: PolicyVersion) -> Demands:
    if found.active is None:
        return _NOBODY
    settings = found.active.policy.settings
    return Demands(settings.labellers, signed=settings.signed_labels)


def _label_of(row: Row) -> LabelRevision:
    fields = tuple(sorted((row["severities"] or {}).items()))
    return of_row(LabelRevision, row, key=key_of(row), record=None, severities=fields)


def _values(dialect: str, values: Sequence[Any], kind: sa.types.TypeEngine[Any]) -> sa.Select[Any]:
    """Select any number of values that are sent as one parameter."""
    if dialect == "sqlite":
        each = sa.func.json_each(json.dumps(list(values), ensure_ascii=False)).table_valued("value")
    else:
        array = sa.cast(list(values), sa.ARRAY(kind))
        each = sa.func.unnest(array).table_valued("value").render_derived()
    return sa.select(each.c.value)


def _pairs(dialect: str, pairs: Sequence[tuple[str, str]]) -> sa.Select[Any]:
    if dialect == "sqlite":
        each = sa.func.json_each(json.dumps(pairs, ensure_ascii=False)).table_valued("value")
        return sa.select(
            sa.func.json_extract(each.c.value, "$[0]"), sa.func.json_extract(each.c.value, "$[1]")
        )
    texts = sa.ARRAY(sa.Text())
    both = (
        sa.func.unnest(
            sa.cast([gate for gate, _ in pairs], texts), sa.cast([name for _, name in pairs], texts)
        )
        .table_valued("gate", "labeller")
        .render_derived()
    )
    return sa.select(both.c.gate, both.c.labeller)
