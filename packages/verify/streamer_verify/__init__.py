"""Verify an audit bundle of conformal-streamer with nothing but Python's standard library (3.11 or later).

    python3 verify.pyz BUNDLE --public-key KEY.pem [--checkpoints FILE.jsonl] [--receipts FILE.jsonl]
                       [--witness-keys FILE] [--policy-keys KEY.pem] [--label-keys KEYS.pem]
                       [--report report.json] [--embeddings FILE.jsonl]

BUNDLE is a folder or a .zip made by `streamer audit export`; its form is described in docs/audit-format.md. Everything
is recomputed: the Merkle logs, the seals of texts, the signatures of checkpoints (Ed25519, RFC 8032) and whether the
record still agrees with them, the audit draw from the revealed salt, each action from stored scores and policy, and each
calibration run from what it has read and the gate's seed. With embeddings of the answers, which no record has, also the
scores of Gram energy.

Exit status: 0 everything fits, 3 something does not (the first row that does not is named), 2 wrong usage, or a bundle
that cannot be read.
"""
