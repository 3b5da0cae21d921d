"""Append-only Merkle logs as RFC 6962 and RFC 9162 define them (section 2.1), over SHA-256.

A log is a list of leaves; its *root* after n leaves binds all of them. The *right edge* is what appending needs: the hashes of
the perfect subtrees that n leaves are made of, at most one for each bit of n. Proofs are lists of hashes, which any
implementation of the RFC verifies.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence

Root = Callable[[int, int], bytes]
"""The root over the leaves from one up to, not including, another."""

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

    `hashes` are of the perfect subtrees, the largest first, as `to_bytes` has put them together. Raises `ValueError` where
    their number is not that of the bits of `size`, the number of leaves.
    """

    __slots__ = ("_hashes", "size")

    def __init__(self, size: int = 0, hashes: bytes = b"") -> None:
        if size < 0 or len(hashes) != HASH_BYTES * size.bit_count():
            raise ValueError(f"{len(hashes)} bytes are no right edge of a log of {size} leaves")
        self.size = size
        self._hashes = [hashes[i : i + HASH_BYTES] for i in range(0, len(hashes), HASH_BYTES)]

    def append(self, leaf: bytes) -> list[bytes]:
        """Append a leaf by its hash; returns that of each perfect subtree that ends with it, the smallest first."""
        ended = [leaf]
        for _ in range((~self.size & (self.size + 1)).bit_length() - 1):
            ended.append(node_hash(self._hashes.pop(), ended[-1]))
        self._hashes.append(ended[-1])
        self.size += 1
        return ended

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


def inclusion_proof(index: int, size: int, root: Root) -> list[bytes]:
    """Prove that the leaf of an index (from 0) is in the log of `size` leaves (RFC 9162, 2.1.3.1)."""
    if not 0 <= index < size:
        raise ValueError(f"a log of {size} leaves has no leaf {index}")
    first, end, proof = 0, size, []
    while end - first > 1:
        middle = first + _split(end - first)
        other = (middle, end) if index < middle else (first, middle)
        first, end = (first, middle) if index < middle else (middle, end)
        proof.append(root(*other))
    return proof[::-1]


def consistency_proof(size: int, whole: int, root: Root) -> list[bytes]:
    """Prove that the log of the first `size` leaves is a beginning of that of `whole` leaves (RFC 9162, 2.1.4.1)."""
    if not 0 < size <= whole:
        raise ValueError(f"a log of {whole} leaves has no beginning of {size}")
    first, end, proof = 0, whole, []
    while end != size:
        middle = first + _split(end - first)
        other = (middle, end) if size <= middle else (first, middle)
        first, end = (first, middle) if size <= middle else (middle, end)
        proof.append(root(*other))
    # The old log's root is known where the whole of it is one subtree.
    return ([root(first, end)] if first else []) + proof[::-1]


def subtrees(first: int, end: int) -> list[tuple[int, int]]:
    """The perfect subtrees that the leaves from `first` up to, not including, `end` are made of, as ranges; the largest first.

    `first` is where a subtree of that many leaves may begin.
    """
    found = []
    while first < end:
        size = 1 << ((end - first).bit_length() - 1)
        found.append((first, first + size))
        first += size
    return found


def among(leaves: Sequence[bytes]) -> Root:
    """Roots of ranges of leaves of these hashes."""
    return lambda first, end: root_of(leaves[first:end])


def _split(size: int) -> int:
    """The largest power of two below `size`."""
    return 1 << ((size - 1).bit_length() - 1)
