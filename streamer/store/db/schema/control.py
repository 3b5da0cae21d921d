"""What governs decisions, sealed in a Merkle log of its own, and the log of heads, which says where all logs stood; append-only."""

import sqlalchemy as sa

from streamer.store.db.schema.types import (
    BIGINT,
    UtcDateTime,
    check,
    digest,
    edge,
    identity_column,
    required,
    sized_text,
    table,
)

control_head = table(
    "control_head",
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False, comment="always 1"),
    required("record_id", sa.LargeBinary, comment="drawn once: which record this is"),
    required("log_size", BIGINT, comment="leaves of the control log"),
    required("log_edge", sa.LargeBinary, comment="its right edge: a hash for each bit of its size"),
    check("id", "id = 1"),
    digest("record_id"),
    check("log_size", "log_size >= 0"),
    edge("log_edge"),
    changes=("log_size", "log_edge"),
    no_evidence={"id": "always 1"},
)

control_log = table(
    "control_log",
    sa.Column("leaf_index", BIGINT, primary_key=True, autoincrement=False, comment="from 0, without holes"),
    required("kind", sa.Text, comment="the table whose row is sealed"),
    required("subject", sa.Text, comment="its primary key, a JSON array"),
    required("sealed", sa.Text, comment="the row as it was written, canonical JSON"),
    required("recorded_at", UtcDateTime),
    required("leaf_hash", sa.LargeBinary),
    required("root", sa.LargeBinary, comment="of the log that ends with this leaf"),
    sa.UniqueConstraint("kind", "subject"),
    check("leaf_index", "leaf_index >= 0"),
    sized_text("kind", 64),
    digest("leaf_hash"),
    digest("root"),
)

control_queue = table(
    "control_queue",
    identity_column(),
    required("kind", sa.Text, comment="as in control_log"),
    required("subject", sa.Text, comment="as in control_log"),
    required("sealed", sa.Text, comment="as in control_log"),
    required("recorded_at", UtcDateTime),
    deletes=True,
    no_evidence="what a closing waits to seal; its rows are evidence, and in the log before a bundle is made",
)
"""What closings wrote and the control log does not have yet, in order: whoever holds its head next moves it there."""

heads = table(
    "heads",
    sa.Column(
        "leaf_index",
        BIGINT,
        primary_key=True,
        autoincrement=False,
        comment="place in the log of heads, from 0",
    ),
    required("data", sa.LargeBinary, comment="where every log stood: what the leaf is the hash of"),
    required(
        "nodes", sa.LargeBinary, comment="hashes of the perfect subtrees that end with it, the smallest first"
    ),
    no_evidence={"nodes": "hashes that follow from the log of heads"},
)

signed_head = table(
    "signed_head",
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False, comment="always 1"),
    required("size", BIGINT, comment="leaves of the log of heads"),
    required("published", BIGINT, comment="how many the newest published checkpoint covers"),
    sa.Column("published_at", UtcDateTime, comment="when that was"),
    required("note", sa.LargeBinary, comment="the newest checkpoint, signed"),
    check("id", "id = 1"),
    changes=("size", "published", "published_at", "note"),
    no_evidence={
        "id": "always 1",
        "published": "up to where checkpoints went to the topic",
        "published_at": "when they last did",
        "size": "how many heads the checkpoint beside it covers",
    },
)
"""The newest checkpoint; a row from the beginning."""

restorations = table(
    "restorations",
    sa.Column("id", BIGINT, primary_key=True, autoincrement=False, comment="from 1, without holes"),
    required("at", UtcDateTime),
    required("by", sa.Text),
    required("reason", sa.Text),
    required("origin", sa.Text, comment="of checkpoints from here on"),
    required("kept", BIGINT, comment="heads that stay as they are"),
    required(
        "given_up",
        sa.Text,
        comment="origin and size of the largest log of heads given up, a JSON array of each",
    ),
    required("signature", sa.Text, comment="Ed25519 by the key of checkpoints, in base64"),
    sized_text("by", 200),
    sized_text("reason", 2000),
    sealed=True,
)
"""Backups that were restored, and what had been signed after they were made."""

give_outs = table(
    "give_outs",
    sa.Column("id", BIGINT, primary_key=True, autoincrement=False, comment="from 1, without holes"),
    required("at", UtcDateTime),
    required("by", sa.Text),
    required("reason", sa.Text),
    required("through", sa.Text, comment="the month by whose end they were recorded"),
    required("file", sa.Text, comment="the segment that has them, as it was called"),
    required("sha256", sa.Text, comment="of that file, in hexadecimal"),
    required("bytes", BIGINT, comment="how long it is"),
    required("heads", BIGINT, comment="of the log of heads under the checkpoint that covers them"),
    required(
        "logs",
        sa.Text,
        comment="of each log: log_id, topic, partition, first leaf, one past the last, how many"
        " decisions left, and the root of a Merkle log of their leaves; a JSON array",
    ),
    sized_text("by", 200),
    sized_text("reason", 500),
    sized_text("file", 1000),
    check("through", "length(through) = 7"),
    check("sha256", "length(sha256) = 64"),
    sealed=True,
)
"""Decisions that left the database for a file."""

cosignatures = table(
    "cosignatures",
    sa.Column("witness", sa.Text, primary_key=True, comment="its name"),
    required("size", BIGINT, comment="leaves of the log of heads that it has cosigned"),
    required("note", sa.LargeBinary, comment="the checkpoint, with the witness's signature"),
    changes=None,
    no_evidence="what witnesses have cosigned: evidence is what they keep themselves",
)


erasures = table(
    "erasures",
    sa.Column("id", sa.Text, primary_key=True),
    required("at", UtcDateTime),
    required("by", sa.Text),
    required("reason", sa.Text),
    required("before", UtcDateTime, comment="what was decided or refused before then may be erased"),
    required("sooner", sa.Boolean, comment="younger than six months was permitted"),
    sized_text("id", 64),
    sized_text("by", 200),
    sized_text("reason", 500),
    check("before", '"before" <= at'),
    sealed=True,
)
