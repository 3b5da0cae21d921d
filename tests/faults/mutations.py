"""Messages that are nearly right: stored examples with a few things changed, the same again for the same seed."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streamer import events

EXAMPLES = Path(events.__file__).parent / "examples"

_PIECES = (
    *(b'"', b"\\", b"\\u0000", b"\\ud800", b"\\udc00\\ud800", b"[", b"]", b"{", b"}", b",", b":", b'{"a":'),
    *(b"NaN", b"-Infinity", b"1e999", b"-0", b"1e-400", b"9" * 400, b"0x1", b"01", b"null", b"true"),
    *(
        b"\x00",
        b"\xff",
        b"\xc3",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"\xe2\x80\xae",
        b"[" * 3000,
        b'{"a":' * 300,
    ),
)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**63, -(2**63) - 1, 10**30, 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *(
        "",
        " ",
        "a",
        "\x00",
        "\ud800",
        "\u202e",
        "x" * 300,
        "x" * 70_000,
        "2026-11-20T12:00:00Z",
        "0000-00-00",
    ),
    *([], [[]], [None], [1] * 5000, {}, {"id": "a"}, {"": {}}, [{"id": "a", "text": "t"}] * 300),
)


def mutations(examples: list[bytes], count: int, seed: int) -> Iterator[bytes | None]:
    """Yield `count` messages, some of them still right."""
    rng = random.Random(seed)
    for _ in range(count):
        value = rng.choice(examples)
        kind = rng.random()
        if kind < 0.45:
            yield _in_structure(value, rng)
        elif kind < 0.95:
            yield _in_bytes(value, rng)
        elif kind < 0.98:
            yield rng.randbytes(rng.randrange(200))
        else:
            yield rng.choice(
                (None, b"", b"\x00\x00\x00\x00\x01" + value, value + value, value.replace(b'"', b"'"))
            )


def _in_bytes(value: bytes, rng: random.Random) -> bytes:
    changed = bytearray(value)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed) + 1)
        piece = rng.choice(_PIECES) if rng.random() < 0.7 else rng.randbytes(rng.randint(1, 3))
        changed[at : at + rng.choice((0, 0, 1, 5, 50))] = piece
    return bytes(changed)


def _in_structure(value: bytes, rng: random.Random) -> bytes:
    root: Any = [json.loads(value)]
    for _ in range(rng.randint(1, 3)):
        parent, place = _somewhere(root, rng)
        kind = rng.random()
        if kind < 0.6:
            parent[place] = copy.deepcopy(rng.choice(_VALUES))
        elif kind < 0.8 and parent is not root:
            del parent[place]
        elif isinstance(parent, list):
            parent.insert(place, copy.deepcopy(parent[place]))
        elif parent is not root:
            parent[rng.choice(("", "schema", "extra", "x" * 300, "\u202e", "gate "))] = copy.deepcopy(
                parent[place]
            )
    return json.dumps(root[0] if root else None, ensure_ascii=rng.random() < 0.5).encode(
        errors="surrogatepass"
    )


def _somewhere(root: Any, rng: random.Random) -> tuple[Any, Any]:
    parent, place = root, 0
    while True:
        child = parent[place]
        if not isinstance(child, dict | list) or not child or rng.random() < 0.3:
            return parent, place
        parent = child
        place = rng.choice([*child]) if isinstance(child, dict) else rng.randrange(len(child))
