"""Policies as rows, with the settings, the seed and the salt that belong to them; what cannot be read is marked as such."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import chain

import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.gates.policy import ActivePolicy, Closing, Policy
from streamer.gates.settings import FLAT_NAMES, GateSettings
from streamer.signing.policies import PolicyVersion
from streamer.store.audit import control
from streamer.store.calibration.run_rows import bursts_of, losses_of, with_prompts
from streamer.store.db.bulk_insert import Statement, execute_all
from streamer.store.db.schema import calibration_runs, gate_revisions, gates, joins, policies
from streamer.store.db.schema.joins import REVISION_OF_POLICY
from streamer.store.db.schema.types import Row

SETTINGS = FLAT_NAMES

_OWN = tuple(
    field.name for field in fields(Policy) if field.name in {column.name for column in policies.columns}
)
"""What a policy and its row both have."""

_UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError)
"""What reading a row may raise whose values are of no form that this program writes."""

_PAGE = 50
_KNOWN = 100
_known: dict[str, GateSettings] = {}
"""Settings that were read last, by their values."""


def no_gate(gate: str) -> UsageError:
    """The error for a gate that nobody created."""
    return UsageError(f"there is no gate {gate!r}; `streamer gate list` shows those there are")


_NEWEST = joins.newest(policies.c.version)
_NEWEST_OF = _NEWEST.where(policies.c.gate.in_(sa.bindparam("names", expanding=True)))
_NEWEST_OF_ARRAY = _NEWEST.where(policies.c.gate == sa.func.any(sa.text("CAST(:names AS text[])")))


def newest(connection: sa.Connection, names: Sequence[str] | None) -> Statement:
    """What asks for gate and version of each gate's newest policy; of all gates when None."""
    if names is None:
        return Statement(_NEWEST, {})
    return Statement(
        _NEWEST_OF if connection.dialect.name == "sqlite" else _NEWEST_OF_ARRAY, {"names": list(names)}
    )


def newest_keys(connection: sa.Connection, names: Sequence[str] | None) -> list[tuple[str, int]]:
    """Gate and version of each gate's newest policy; of all gates when None."""
    (found,) = execute_all(connection, [newest(connection, names)])
    return sorted((gate, version) for gate, version in found)


def keys_below(
    connection: sa.Connection, gate: str, below: int | None, limit: int | None
) -> list[tuple[str, int]]:
    """Gate and version of the policies before a version, the newest first."""
    query = sa.select(policies.c.gate, policies.c.version).where(policies.c.gate == gate)
    if below is not None:
        query = query.where(policies.c.version < below)
    rows = connection.execute(query.order_by(policies.c.version.desc()).limit(limit))
    return [(name, version) for name, version in rows]


def read_versions(connection: sa.Connection, keys: Sequence[tuple[str, int]]) -> list[PolicyVersion]:
    """Read policies by gate and version, in the order of `keys`; one that cannot be read does not hide the others."""
    if not keys:
        return []
    record_id = control.head(connection).record_id
    try:
        return _read(connection, keys, record_id)
    except _UNREADABLE:
        # Some value already fails when it is fetched.
        return [_read_alone(connection, key, record_id) for key in keys]


def from_newest(connection: sa.Connection, newest: PolicyVersion) -> Iterator[PolicyVersion]:
    """The newest version of a gate, and then those before it, as far as they are asked for."""

    def older() -> Iterator[PolicyVersion]:
        below = newest.version
        while keys := keys_below(connection, newest.gate, below, _PAGE):
            yield from read_versions(connection, keys)
            below = keys[-1][1]

    return chain([newest], older())


_BEFORE = policies.alias()
_CLOSING = (
    sa.select(
        *policies.c["version", "created_by", "valid_from", "reason", "state", "calibration_run"],
        _BEFORE.c.state.label("before"),
    )
    .outerjoin(_BEFORE, (_BEFORE.c.gate == policies.c.gate) & (_BEFORE.c.version == policies.c.version - 1))
    .where(
        _BEFORE.c.version.is_(None)
        | (_BEFORE.c.state != "closed")
        | (policies.c.state != "closed")
        | (_BEFORE.c.gate_revision == policies.c.gate_revision)
    )
    .order_by(policies.c.version.desc())
    .limit(1)
)
"""The newest policies but for those that only changed settings of a closed gate, which stays closed as it was."""


def closing_of(connection: sa.Connection, gate: str, until: int | None = None) -> Closing | None:
    """Read by which policy a gate is closed; None where it is not, a calibration found that, or it never was open.

    `until` : the last version that counts; None: all do.
    """
    query = _CLOSING.where(policies.c.gate == gate)
    row = connection.execute(query if until is None else query.where(policies.c.version <= until)).one()
    if row.state != "closed" or row.calibration_run is not None or row.before is None:
        return None
    return Closing(row.version, row.created_by, row.valid_from, row.reason)


def settings_of(row: Row) -> GateSettings:
    """The settings in a row of `gate_revisions`."""
    values = {name: row[name] for name in SETTINGS}
    key = repr(values)  # many gates have the same ones; a value may be a list
    if (known := _known.get(key)) is None:
        if len(_known) >= _KNOWN:
            _known.clear()
        known = _known[key] = GateSettings(**values)
    return known


def _read(
    connection: sa.Connection, keys: Sequence[tuple[str, int]], record_id: bytes
) -> list[PolicyVersion]:
    found: dict[tuple[str, int], Row] = {}
    for start in range(0, len(keys), 500):
        query = _SELECT.where(
            sa.tuple_(policies.c.gate, policies.c.version).in_(list(keys[start : start + 500]))
        )
        for row in connection.execute(query).mappings():
            found[row["gate"], row["version"]] = row
    return [_version(connection, key, found.get(key), record_id) for key in keys]


def _read_alone(connection: sa.Connection, key: tuple[str, int], record_id: bytes) -> PolicyVersion:
    try:
        return _read(connection, [key], record_id)[0]
    except _UNREADABLE:
        return _version(connection, key, None, record_id)


def _version(
    connection: sa.Connection, key: tuple[str, int], row: Row | None, record_id: bytes
) -> PolicyVersion:
    active = None
    if row is not None:
        try:
            own = {name: row[name] for name in _OWN}
            run = row["calibration_run"], row["older_than"]
            own["rule"] = with_prompts(connection, own["rule"], *run)
            settings = settings_of(row)
            losses = losses_of(connection, settings, own["rule"], *run)
            bursts = bursts_of(connection, settings, row["calibration_run"], row["burst_key"])
            closing = closing_of(connection, *key) if row["state"] == "closed" else None
            own["closing"] = None if closing is None or closing.version == key[1] else closing
            policy = Policy(settings=settings, seed=row["seed"], losses=losses, bursts=bursts, **own)
            active = ActivePolicy(policy, row["audit_salt"])
        except _UNREADABLE:
            active = None
    return PolicyVersion(
        gate=key[0],
        version=key[1],
        active=active,
        signature=None if row is None else row["signature"],
        key_id=None if row is None else row["key_id"],
        record_id=record_id,
    )


_SELECT = (
    sa.select(
        policies,
        *gate_revisions.c[SETTINGS],
        *gates.c["seed", "audit_salt"],
        *calibration_runs.c["older_than", "burst_key"],
    )
    .join(gate_revisions, REVISION_OF_POLICY)
    .join(gates, gates.c.name == policies.c.gate)
    .outerjoin(calibration_runs, calibration_runs.c.id == policies.c.calibration_run)
)
