"""A decision's full receipt: its leaf, and the proof that a signed checkpoint covers it. It can be checked alone, without the
record: the leaf's hash and the proof lead to the checkpoint's root (RFC 9162, section 2.1.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamer.signing.canonical_json import canonical_json
from streamer.signing.merkle import inclusion_proof, leaf_hash, root_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LEAF = ("kind", "source", "index", "recorded_at", "facts")
"""What of an outcome its leaf covers."""


def leaf_data(line: dict[str, Any]) -> bytes:
    """What a leaf is the hash of; `line` as a bundle has it."""
    return canonical_json({name: line[name] for name in LEAF})


def fits(line: dict[str, Any]) -> bool:
    """Report whether a decision's leaf follows from what the tables say now."""
    return line["facts"] is not None and leaf_hash(leaf_data(line)).hex() == line["leaf"]


def full_receipt(
    line: dict[str, Any],
    checkpoint: dict[str, Any],
    leaves: Callable[[Sequence[Any], int], Sequence[bytes]],
) -> dict[str, Any]:
    """Prove that a checkpoint covers a decision.

    Parameters
    ----------
    line : the decision, as a bundle has it; it `fits`.
    checkpoint : covers it, as published.
    leaves : returns the hashes of the first leaves of a log: log id, topic and partition; how many.

    Raises
    ------
    ValueError
        When the log is not the one that was signed.
    """
    place = line["source"][:3]
    head = next(
        one for one in checkpoint["partitions"] if [one["log_id"], one["topic"], one["partition"]] == place
    )
    hashes = leaves(place, head["size"])
    if root_of(hashes).hex() != head["root"]:
        raise ValueError(f"checkpoint {checkpoint['sequence']} was made of another log")
    return {
        "log": place,
        "index": line["index"],
        "data": leaf_data(line).decode(),
        "leaf": line["leaf"],
        "size": head["size"],
        "root": head["root"],
        "proof": [one.hex() for one in inclusion_proof(line["index"], hashes)],
        "checkpoint": checkpoint,
    }
