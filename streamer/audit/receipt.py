"""A decision's full receipt: its leaf, and the proof that a signed checkpoint covers it. It can be checked alone, without the
record: the leaf's hash and a proof lead to the log's root in a leaf of the log of heads, and that leaf's hash and a proof to the
checkpoint's (RFC 9162, section 2.1.3)."""

from collections.abc import Callable, Sequence
from typing import Any

from streamer.signing.canonical_json import canonical_json
from streamer.signing.merkle import among, inclusion_proof, leaf_hash, root_of

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
    head: dict[str, Any],
    leaves: Callable[[Sequence[Any], int], Sequence[bytes]],
    proof_of_head: Callable[[int], dict[str, Any]],
) -> dict[str, Any]:
    """Prove that a checkpoint covers a decision.

    Parameters
    ----------
    line : the decision, as a bundle has it; it `fits`.
    head : the leaf of the log of heads that covers it.
    leaves : returns the hashes of the first leaves of a log: log id, topic and partition; how many.
    proof_of_head : returns `head` and `checkpoint` of the receipt, given the leaf's index.

    Raises
    ------
    ValueError
        When the log is not the one that was signed.
    """
    place = line["source"][:3]
    said = next(one for one in head["partitions"] if [one["log_id"], one["topic"], one["partition"]] == place)
    hashes = leaves(place, said["size"])
    if root_of(hashes).hex() != said["root"]:
        raise ValueError(f"checkpoint {head['index'] + 1} was made of another log")
    return {
        "log": place,
        "index": line["index"],
        "data": leaf_data(line).decode(),
        "leaf": line["leaf"],
        "size": said["size"],
        "root": said["root"],
        "proof": [one.hex() for one in inclusion_proof(line["index"], said["size"], among(hashes))],
        **proof_of_head(head["index"]),
    }
