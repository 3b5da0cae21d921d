"""Gates and their append-only revisions; policies and the append-only story of who did what to them, and why."""

from typing import Any

import sqlalchemy as sa

from streamer.gates.setting import NO_VALUE, Setting
from streamer.gates.settings import SETTINGS
from streamer.store.db.schema.types import (
    BIGINT,
    REAL,
    Names,
    Numbers,
    Rule,
    UtcDateTime,
    check,
    digest,
    finite_cut,
    identity_column,
    one_of,
    required,
    sized_rule,
    sized_text,
    table,
)

gates = table(
    "gates",
    sa.Column("name", sa.Text, primary_key=True),
    required("seed", BIGINT),
    required("audit_salt", sa.LargeBinary),
    required("created_at", UtcDateTime),
    sized_text("name", 64),
    check("seed", "seed >= 0"),
    digest("audit_salt"),
    sealed=True,
    locked_by="name",
)

_TYPES: dict[type, Any] = {
    str: sa.Text,
    int: sa.Integer,
    float: REAL,
    bool: sa.Boolean,
    tuple: Names,
    dict: Numbers,
}
_COMPARED = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def _column(one: Setting) -> sa.Column[Any]:
    switch = {True: sa.true(), False: sa.false()} if one.kind is bool else {}
    before = None if one.before is NO_VALUE or one.before is None else sa.text(repr(one.before))
    return sa.Column(
        one.name,
        _TYPES[one.kind],
        nullable=one.optional,
        server_default=switch.get(one.before, before),
        comment=one.help,
    )


def _constraint(one: Setting) -> sa.CheckConstraint:
    if one.choices:
        return one_of(one.name, one.choices)
    if not one.numeric:
        return sized_text(one.name, int(one.most), least=int(one.least))
    ends = one.bounds(1e300 if one.kind is float else None).items()
    return check(one.name, " AND ".join(f'"{one.name}" {_COMPARED[way]} {end!r}' for way, end in ends))


gate_revisions = table(
    "gate_revisions",
    sa.Column("gate", sa.Text, sa.ForeignKey("gates.name"), primary_key=True),
    sa.Column("revision", sa.Integer, primary_key=True, autoincrement=False),
    *(_column(one) for one in SETTINGS.values()),
    required("created_at", UtcDateTime),
    required("created_by", sa.Text),
    required("reason", sa.Text),
    check("revision", "revision >= 1"),
    *(_constraint(one) for one in SETTINGS.values() if one.kind is not bool),
    check(
        "encoder_of_scorer",
        "(scorer IN ('external', 'likelihood', 'support')) = (encoder = 'none')",
    ),
    check("external_encoder", "embeddings = 'accept' OR substr(encoder, 1, 9) <> 'external:'"),
    check("accepted_dimension", "embeddings = 'refuse' OR dimension IS NOT NULL"),
    sealed=True,
)

policies = table(
    "policies",
    sa.Column("gate", sa.Text, sa.ForeignKey("gates.name"), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    required("gate_revision", sa.Integer),
    required("state", sa.Text),
    sa.Column("threshold", REAL),
    sa.Column("rule", Rule, comment="how the threshold is to be read; NULL: ship iff the score is above it"),
    required("calibrated", sa.Boolean),
    sa.Column("calibration_run", BIGINT, sa.ForeignKey("calibration_runs.id")),
    required("guarantee", sa.Text),
    required("valid_from", UtcDateTime),
    required("created_by", sa.Text),
    required("reason", sa.Text),
    sa.Column(
        "signature",
        sa.Text,
        comment="Ed25519, base64; covers this row and the settings of the gate; NULL: not signed",
    ),
    sa.Column("key_id", sa.Text, comment="SHA-256 of the public key, in hexadecimal"),
    sa.ForeignKeyConstraint(["gate", "gate_revision"], ["gate_revisions.gate", "gate_revisions.revision"]),
    check("version", "version >= 1"),
    *finite_cut(),
    sized_rule(),
    check("uncalibrated_is_closed", "calibrated OR state = 'closed'"),
    check("uncalibrated_has_no_run", "calibrated OR calibration_run IS NULL"),
    sized_text("signature", 200),
    sized_text("key_id", 64),
    sealed=True,
)

policy_events = table(
    "policy_events",
    identity_column(),
    required("gate", sa.Text),
    required("version", sa.Integer),
    required("event", sa.Text),
    required("by", sa.Text),
    required("reason", sa.Text),
    required("at", UtcDateTime),
    sa.ForeignKeyConstraint(["gate", "version"], ["policies.gate", "policies.version"]),
    one_of("event", ("created", "activated", "superseded", "closed")),
    sa.UniqueConstraint("gate", "version", "event"),
    sealed=True,
)
