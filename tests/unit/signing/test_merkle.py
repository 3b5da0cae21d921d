"""Merkle logs against the RFC's recursive definition, and their proofs against every root that they must and must not give."""

from collections.abc import Sequence

import pytest

from streamer.signing.merkle import (
    EMPTY_ROOT,
    Edge,
    among,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    node_hash,
    root_of,
)

LEAVES = [leaf_hash(bytes([i])) for i in range(70)]


def defined(leaves: Sequence[bytes]) -> bytes:
    """RFC 9162, 2.1.1, as it is written there."""
    if not leaves:
        return EMPTY_ROOT
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return node_hash(defined(leaves[:split]), defined(leaves[split:]))


def root_by_proof(index: int, size: int, leaf: bytes, proof: Sequence[bytes]) -> bytes:
    """Return the root that an inclusion proof leads to (RFC 9162, 2.1.3.2); it proves nothing until a signed head has it.

    Raises `ValueError` for a proof of another length than this index and size have.
    """
    if not 0 <= index < size:
        raise ValueError(f"a log of {size} leaves has no leaf {index}")
    node, last, root = index, size - 1, leaf
    for one in proof:
        if last == 0:
            raise ValueError("the proof is too long")
        if node & 1 or node == last:
            root = node_hash(one, root)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            root = node_hash(root, one)
        node, last = node >> 1, last >> 1
    if last:
        raise ValueError("the proof is too short")
    return root


def test_an_edge_has_the_root_of_its_leaves_also_when_it_was_stored() -> None:
    edge = Edge()
    for size, leaf in enumerate([*LEAVES, b""]):
        stored = edge.to_bytes()
        assert edge.size == size
        assert len(stored) == 32 * size.bit_count()
        edge = Edge(size, stored)
        assert edge.root() == root_of(LEAVES[:size]) == defined(LEAVES[:size])
        edge.append(leaf)


@pytest.mark.parametrize(("size", "length"), [(-1, 0), (0, 32), (3, 32), (4, 31), (5, 96)])
def test_what_is_no_edge_is_refused(size: int, length: int) -> None:
    with pytest.raises(ValueError, match="no right edge"):
        Edge(size, bytes(length))


@pytest.mark.parametrize("size", range(1, 20))
def test_a_proof_leads_to_the_root_from_its_own_leaf_alone(size: int) -> None:
    leaves = LEAVES[:size]
    for index in range(size):
        proof = inclusion_proof(index, size, among(leaves))
        assert root_by_proof(index, size, leaves[index], proof) == defined(leaves)
        for other in range(size):
            try:
                found = root_by_proof(other, size, leaves[index], proof)
            except ValueError:
                continue
            assert (found == defined(leaves)) == (other == index)
        for wrong in (*([proof[:-1]] if proof else []), [*proof, EMPTY_ROOT]):
            with pytest.raises(ValueError, match=r"too (long|short)"):
                root_by_proof(index, size, leaves[index], wrong)


@pytest.mark.parametrize(("index", "size"), [(-1, 3), (3, 3), (0, 0)])
def test_there_is_no_proof_of_what_is_not_there(index: int, size: int) -> None:
    with pytest.raises(ValueError, match="has no leaf"):
        inclusion_proof(index, size, among(LEAVES[:size]))
    with pytest.raises(ValueError, match="has no leaf"):
        root_by_proof(index, size, EMPTY_ROOT, [])
    with pytest.raises(ValueError, match="no beginning"):
        consistency_proof(size + 1, size, among(LEAVES[:size]))
