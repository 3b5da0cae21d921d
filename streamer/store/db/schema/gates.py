"""Gates and their append-only revisions; policies and the append-only story of who did what to them, and why."""

from typing import Any

import sqlalchemy as sa

from streamer.gates.setting import NO_VALUE, Setting
from streamer.gates.settings import SETTINGS
from streamer.store.db.schema import types as db

gates = db.table(
    "gates",
    db.key("name", sa.Text, must=db.Characters(64)),
    db.required("seed", db.BIGINT, must="{} >= 0"),
    db.required("audit_salt", sa.LargeBinary, must=db.HASH),
    db.required("created_at", db.UtcDateTime),
    sealed=True,
    locked_by="name",
)

_TYPES: dict[type, Any] = {
    str: sa.Text,
    int: sa.Integer,
    float: db.REAL,
    bool: sa.Boolean,
    tuple: db.Names,
    dict: db.Numbers,
}
_COMPARED = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def _column(one: Setting) -> sa.Column[Any]:
    switch = {True: sa.true(), False: sa.false()} if one.kind is bool else {}
    before = None if one.before is NO_VALUE or one.before is None else sa.text(repr(one.before))
    return db.optional(
        one.name,
        _TYPES[one.kind],
        must=_must(one),
        nullable=one.optional,
        server_default=switch.get(one.before, before),
        comment=one.help,
    )


def _must(one: Setting) -> db.Must | None:
    if one.choices:
        return db.one_of(one.choices)
    if not one.numeric:
        return None if one.kind is bool else db.Characters(int(one.most), int(one.least))
    ends = one.bounds(1e300 if one.kind is float else None).items()
    return " AND ".join(f'"{{}}" {_COMPARED[way]} {end!r}' for way, end in ends)


gate_revisions = db.table(
    "gate_revisions",
    db.key("gate", sa.Text, sa.ForeignKey("gates.name")),
    db.key("revision", sa.Integer, must="{} >= 1"),
    *map(_column, SETTINGS.values()),
    db.required("created_at", db.UtcDateTime),
    db.required("created_by", sa.Text),
    db.required("reason", sa.Text),
    db.check(
        "encoder_of_scorer",
        "(scorer IN ('external', 'likelihood', 'support')) = (encoder = 'none')",
    ),
    db.check("external_encoder", "embeddings = 'accept' OR substr(encoder, 1, 9) <> 'external:'"),
    db.check("accepted_dimension", "embeddings = 'refuse' OR dimension IS NOT NULL"),
    sealed=True,
)

policies = db.table(
    "policies",
    db.key("gate", sa.Text, sa.ForeignKey("gates.name")),
    db.key("version", sa.Integer, must="{} >= 1"),
    db.required("gate_revision", sa.Integer),
    db.required("state", sa.Text),
    db.optional("threshold", db.REAL),
    db.optional(
        "rule",
        db.Rule,
        must=db.SIZED_RULE,
        comment="how the threshold is to be read; NULL: ship iff the score is above it",
    ),
    db.required("calibrated", sa.Boolean),
    db.optional("calibration_run", db.BIGINT, sa.ForeignKey("calibration_runs.id")),
    db.required("guarantee", sa.Text),
    db.required("valid_from", db.UtcDateTime),
    db.required("created_by", sa.Text),
    db.required("reason", sa.Text),
    db.optional(
        "signature",
        sa.Text,
        comment="Ed25519, base64; covers this row and the settings of the gate; NULL: not signed",
        must=db.Characters(200),
    ),
    db.optional(
        "key_id", sa.Text, comment="SHA-256 of the public key, in hexadecimal", must=db.Characters(64)
    ),
    sa.ForeignKeyConstraint(["gate", "gate_revision"], ["gate_revisions.gate", "gate_revisions.revision"]),
    *db.finite_cut(),
    db.check("uncalibrated_is_closed", "calibrated OR state = 'closed'"),
    db.check("uncalibrated_has_no_run", "calibrated OR calibration_run IS NULL"),
    sealed=True,
)

policy_events = db.table(
    "policy_events",
    db.identity_column(),
    db.required("gate", sa.Text),
    db.required("version", sa.Integer),
    db.required("event", sa.Text, must=db.one_of(("created", "activated", "superseded", "closed"))),
    db.required("by", sa.Text),
    db.required("reason", sa.Text),
    db.required("at", db.UtcDateTime),
    sa.ForeignKeyConstraint(["gate", "version"], ["policies.gate", "policies.version"]),
    sa.UniqueConstraint("gate", "version", "event"),
    sealed=True,
)
