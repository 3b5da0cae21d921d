"""The log of heads as static files that any client of such logs reads: https://c2sp.org/tlog-tiles."""

import itertools
from collections.abc import Iterable
from pathlib import Path

from streamer.errors import UsageError
from streamer.signing.merkle import leaf_hash, root_of

WIDTH = 256
"""Hashes of a full tile."""

_LONGEST = 65_535


def write_tiles(heads: Iterable[bytes], checkpoint: bytes, target: Path) -> int:
    """Write tiles of hashes, bundles of leaves, and the checkpoint that covers them into a new folder; returns how many leaves.

    Raises `UsageError` where the folder exists or cannot be written, or a leaf is too long for a bundle.
    """
    open_tiles: dict[int, list[bytes]] = {}
    numbers: dict[int, int] = {}

    def write(level: int | str, number: int, parts: list[bytes]) -> None:
        *above, last = f"{number:,}".split(",")
        path = "/".join([*(f"x{name:0>3}" for name in above), f"{last:0>3}"])
        partial = "" if len(parts) == WIDTH else f".p/{len(parts)}"
        file = target / "tile" / str(level) / f"{path}{partial}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"".join(parts))

    def add(level: int, node: bytes) -> None:
        tile = open_tiles.setdefault(level, [])
        tile.append(node)
        if len(tile) == WIDTH:
            write(level, numbers.setdefault(level, 0), tile)
            numbers[level] += 1
            open_tiles[level] = []
            add(level + 1, root_of(tile))

    size, leaves = int(checkpoint.split(b"\n")[1]), iter(heads)
    try:
        target.mkdir(parents=True)
        for first in range(0, size, WIDTH):
            bundle = list(itertools.islice(leaves, min(WIDTH, size - first)))
            if any(len(one) > _LONGEST for one in bundle):
                raise UsageError(
                    f"a head is longer than {_LONGEST} bytes, which no bundle of tlog-tiles holds"
                )
            write("entries", first // WIDTH, [len(one).to_bytes(2) + one for one in bundle])
            for one in bundle:
                add(0, leaf_hash(one))
        for level, tile in open_tiles.items():
            if tile:
                write(level, numbers.get(level, 0), tile)
        (target / "checkpoint").write_bytes(checkpoint)
    except FileExistsError:
        raise UsageError(f"{target} exists; name a new folder") from None
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from None
    return size
