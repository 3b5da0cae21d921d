"""What governs decisions, sealed in a Merkle log of its own, and the log of heads, which says where all logs stood; append-only."""

import sqlalchemy as sa

from streamer.store.db.schema import types as db

control_head = db.table(
    "control_head",
    db.key("id", sa.Integer, comment="always 1", must="{} = 1"),
    db.required("record_id", sa.LargeBinary, comment="drawn once: which record this is", must=db.HASH),
    db.required("log_size", db.BIGINT, comment="leaves of the control log", must="{} >= 0"),
    db.required(
        "log_edge", sa.LargeBinary, comment="its right edge: a hash for each bit of its size", must=db.EDGE
    ),
    changes=("log_size", "log_edge"),
    no_evidence={"id": "always 1"},
)

control_log = db.table(
    "control_log",
    db.key("leaf_index", db.BIGINT, comment="from 0, without holes", must="{} >= 0"),
    db.required("kind", sa.Text, comment="the table whose row is sealed", must=db.Characters(64)),
    db.required("subject", sa.Text, comment="its primary key, a JSON array"),
    db.required("sealed", sa.Text, comment="the row as it was written, canonical JSON"),
    db.required("recorded_at", db.UtcDateTime),
    db.required("leaf_hash", sa.LargeBinary, must=db.HASH),
    db.required("root", sa.LargeBinary, comment="of the log that ends with this leaf", must=db.HASH),
    sa.UniqueConstraint("kind", "subject"),
)

control_queue = db.table(
    "control_queue",
    db.identity_column(),
    db.required("kind", sa.Text, comment="as in control_log"),
    db.required("subject", sa.Text, comment="as in control_log"),
    db.required("sealed", sa.Text, comment="as in control_log"),
    db.required("recorded_at", db.UtcDateTime),
    deletes=True,
    no_evidence="what a closing waits to seal; its rows are evidence, and in the log before a bundle is made",
)
"""What closings wrote and the control log does not have yet, in order: whoever holds its head next moves it there."""

heads = db.table(
    "heads",
    db.key("leaf_index", db.BIGINT, comment="place in the log of heads, from 0"),
    db.required("data", sa.LargeBinary, comment="where every log stood: what the leaf is the hash of"),
    db.required(
        "nodes", sa.LargeBinary, comment="hashes of the perfect subtrees that end with it, the smallest first"
    ),
    no_evidence={"nodes": "hashes that follow from the log of heads"},
)

signed_head = db.table(
    "signed_head",
    db.key("id", sa.Integer, comment="always 1", must="{} = 1"),
    db.required("size", db.BIGINT, comment="leaves of the log of heads"),
    db.required("published", db.BIGINT, comment="how many the newest published checkpoint covers"),
    db.optional("published_at", db.UtcDateTime, comment="when that was"),
    db.required("note", sa.LargeBinary, comment="the newest checkpoint, signed"),
    changes=("size", "published", "published_at", "note"),
    no_evidence={
        "id": "always 1",
        "published": "up to where checkpoints went to the topic",
        "published_at": "when they last did",
        "size": "how many heads the checkpoint beside it covers",
    },
)
"""The newest checkpoint; a row from the beginning."""

restorations = db.table(
    "restorations",
    db.key("id", db.BIGINT, comment="from 1, without holes"),
    db.required("at", db.UtcDateTime),
    db.required("by", sa.Text, must=db.Characters(200)),
    db.required("reason", sa.Text, must=db.Characters(2000)),
    db.required("origin", sa.Text, comment="of checkpoints from here on"),
    db.required("kept", db.BIGINT, comment="heads that stay as they are"),
    db.required(
        "given_up",
        sa.Text,
        comment="origin and size of the largest log of heads given up, a JSON array of each",
    ),
    db.required("signature", sa.Text, comment="Ed25519 by the key of checkpoints, in base64"),
    sealed=True,
)
"""Backups that were restored, and what had been signed after they were made."""

give_outs = db.table(
    "give_outs",
    db.key("id", db.BIGINT, comment="from 1, without holes"),
    db.required("at", db.UtcDateTime),
    db.required("by", sa.Text, must=db.Characters(200)),
    db.required("reason", sa.Text, must=db.Characters(500)),
    db.required(
        "through", sa.Text, comment="the month by whose end they were recorded", must="length({}) = 7"
    ),
    db.required(
        "file", sa.Text, comment="the segment that has them, as it was called", must=db.Characters(1000)
    ),
    db.required("sha256", sa.Text, comment="of that file, in hexadecimal", must="length({}) = 64"),
    db.required("bytes", db.BIGINT, comment="how long it is"),
    db.required("heads", db.BIGINT, comment="of the log of heads under the checkpoint that covers them"),
    db.required(
        "logs",
        sa.Text,
        comment="of each log: log_id, topic, partition, first leaf, one past the last, how many"
        " decisions left, and the root of a Merkle log of their leaves; a JSON array",
    ),
    sealed=True,
)
"""Decisions that left the database for a file."""

cosignatures = db.table(
    "cosignatures",
    db.key("witness", sa.Text, comment="its name"),
    db.required("size", db.BIGINT, comment="leaves of the log of heads that it has cosigned"),
    db.required("note", sa.LargeBinary, comment="the checkpoint, with the witness's signature"),
    changes=None,
    no_evidence="what witnesses have cosigned: evidence is what they keep themselves",
)


erasures = db.table(
    "erasures",
    db.key("id", sa.Text, must=db.Characters(64)),
    db.required("at", db.UtcDateTime),
    db.required("by", sa.Text, must=db.Characters(200)),
    db.required("reason", sa.Text, must=db.Characters(500)),
    db.required("before", db.UtcDateTime, comment="what was decided or refused before then may be erased"),
    db.required("sooner", sa.Boolean, comment="younger than six months was permitted"),
    db.check("before", '"before" <= at'),
    sealed=True,
)
