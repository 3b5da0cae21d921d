"""Commitments to a gate's secrets: they bind to the value without showing it. Pure."""

import hashlib

from streamer.signing.canonical_json import canonical_json


def salt_commitment(gate: str, salt: bytes) -> str:
    """What may be shown of a gate's audit salt before it is revealed: a SHA-256, in hex, that binds to both."""
    return hashlib.sha256(b"streamer.salt.v1\x00" + canonical_json([gate, salt.hex()])).hexdigest()


def seed_commitment(gate: str, seed: int) -> str:
    """The same of a gate's calibration seed."""
    return hashlib.sha256(b"streamer.seed.v1\x00" + canonical_json([gate, seed])).hexdigest()
