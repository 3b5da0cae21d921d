"""Append-only Merkle logs as RFC 6962 and RFC 9162 define them (section 2.1), over SHA-256.

A log is a list of leaves; its *root* after n leaves binds all of them. The *right edge* is what appending needs: the hashes of
the perfect subtrees that n leaves are made of, at most one for each bit of n. Proofs are lists of hashes, which any
implementation of the RFC verifies.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HASH_BYTES = 32

EMPTY_ROOT = hashlib.sha256().digest()
"""The root of a log without leaves."""


def leaf_hash(data: bytes) -> bytes:
    """Hash a leaf, whatever its bytes are."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash two subtrees into one."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class Edge:
    """The right edge of a log, to which leaves are appended.

    >>> edge = Edge()
    >>> for data in (b"a", b"b", b"c"):
    ...     edge.append(leaf_hash(data))
    >>> edge.size, edge.root() == node_hash(node_hash(leaf_hash(b"a"), leaf_hash(b"b")), leaf_hash(b"c"))
    (3, True)

    Parameters
    ----------
    size : how many leaves there are.
    hashes : of the perfect subtrees, the largest first, as `to_bytes` has put them together. Raises `ValueError` where their
        number is not that of the bits of `size`.
    """

    __slots__ = ("_hashes", "size")

    def __init__(self, size: int = 0, hashes: bytes = b"") -> None:
        if size < 0 or len(hashes) != HASH_BYTES * size.bit_count():
            raise ValueError(f"{len(hashes)} bytes are no right edge of a log of {size} leaves")
        self.size = size
        self._hashes = [hashes[i : i + HASH_BYTES] for i in range(0, len(hashes), HASH_BYTES)]

    def append(self, leaf: bytes) -> None:
        """Append a leaf by its hash."""
        for _ in range((~self.size & (self.size + 1)).bit_length() - 1):
            leaf = node_hash(self._hashes.pop(), leaf)
        self._hashes.append(leaf)
        self.size += 1

    def root(self) -> bytes:
        """The root of the log as it is."""
        if not self._hashes:
            return EMPTY_ROOT
        root = self._hashes[-1]
        for left in reversed(self._hashes[:-1]):
            root = node_hash(left, root)
        return root

    def to_bytes(self) -> bytes:
        """The edge as it is stored."""
        return b"".join(self._hashes)


def root_hex(size: int, hashes: bytes) -> str:
    """The root of a stored edge in hexadecimal; nothing where it is no edge, for whoever tells of it as it is."""
    try:
        return Edge(size, hashes).root().hex()
    except ValueError:
        return ""


def root_of(leaves: Iterable[bytes]) -> bytes:
    """The root of the log that has leaves of these hashes."""
    edge = Edge()
    for leaf in leaves:
        edge.append(leaf)
    return edge.root()


def inclusion_proof(index: int, leaves: Sequence[bytes]) -> list[bytes]:
    """Prove that the leaf of an index (from 0) is in the log of these leaf hashes (RFC 9162, 2.1.3.1)."""
    if not 0 <= index < len(leaves):
        raise ValueError(f"a log of {len(leaves)} leaves has no leaf {index}")
    if len(leaves) == 1:
        return []
    split = _split(len(leaves))
    left, right = leaves[:split], leaves[split:]
    if index < split:
        return [*inclusion_proof(index, left), root_of(right)]
    return [*inclusion_proof(index - split, right), root_of(left)]


def consistency_proof(size: int, leaves: Sequence[bytes]) -> list[bytes]:
    """Prove that the log of the first `size` leaves is a beginning of that of all (RFC 9162, 2.1.4.1)."""
    if not 0 < size <= len(leaves):
        raise ValueError(f"a log of {len(leaves)} leaves has no beginning of {size}")
    return _consistency(size, leaves, whole=True)


def _consistency(size: int, leaves: Sequence[bytes], *, whole: bool) -> list[bytes]:
    if size == len(leaves):
        return [] if whole else [root_of(leaves)]
    split = _split(len(leaves))
    left, right = leaves[:split], leaves[split:]
    if size <= split:
        return [*_consistency(size, left, whole=whole), root_of(right)]
    return [*_consistency(size - split, right, whole=False), root_of(left)]


def _split(size: int) -> int:
    """The largest power of two below `size`."""
    return 1 << ((size - 1).bit_length() - 1)
