"""Messages that are nearly right, made from their structure: dates, numbers, texts, lists and keys at every limit.

Batches and labels of the gates named, a third of them right, each of the others with one to four faults of a kind that
JSON, Unicode, the calendar or floating point allows. The same again for the same seed.
"""

from __future__ import annotations

import base64
import copy
import json
import math
import random
import re
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from streamer.journal import Headers
from tests.faults.mutations import EXAMPLES, mutations
from tests.made import a_label, an_event


class Message(NamedTuple):
    """What a publisher sends."""

    label: bool
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class Token(str):
    """What stands in the JSON text as it is: a number that `json.dumps` would round or refuse, a deep or long list."""

    __slots__ = ()

    def __new__(cls, text: str) -> Token:
        return super().__new__(cls, f"@@{text}@@")

    @property
    def text(self) -> str:
        """What will stand there."""
        return self[2:-2]


_TOKEN = re.compile('"@@([^@]*)@@"')


DATES = (
    *("0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00-23:59"),
    *("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59+23:59", "0001-01-01T23:58:59+23:59"),
    *("0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "-0001-01-01T00:00:00Z", "2026-02-29T00:00:00Z", "2028-02-29T00:00:00Z"),
    *("2026-06-30T23:59:60Z", "2026-01-01T24:00:00Z", "2026-01-01T00:00:00", "2026-01-01 00:00:00z", "2026-01-01T00:00:00+24:00"),
    *("1969-12-31T23:59:59.999999Z", "1970-01-01T00:00:00Z", "2026-01-01T00:00:00.123456789+05:45", "", "null", "1900-01-01T00:00:00-00:00"),
)  # fmt: skip
NUMBERS = tuple(
    map(
        Token,
        (
            *("0", "-0", "-0.0", "0.0", "1", "1.0", "1e0", "1.0000000000000002", "0.9999999999999999", "-1", "0.5"),
            *("5e-324", "-5e-324", "2.2250738585072014e-308", "1e-400", "1e308", "1.7976931348623157e308", "1e309", "-1e999"),
            *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809"),
            *("18446744073709551615", "18446744073709551616", "2147483647", "2147483648", "9007199254740993"),
            *("9" * 400, "9" * 5000, "0." + "3" * 5000, "1e-" + "9" * 30, "1E+2", "NaN", "-Infinity", "0x1", "01", "1_0"),
        ),
    )
)  # fmt: skip
TEXTS = (
    *("", " ", "\t\n", "\u200b\u2060\ufeff", "\x00", "a\x00b", "\ud800", "\udc00\ud800", "\ud83d\ude00", "\U0001f600", "\U0010ffff"),
    *("\u202etxt.exe", "\u2066x\u2069", "e\u0301", "\u00e9", "\ufb01", "fi", "\ufffe", "\uffff", "\x7f", "\x85", "\u2028", "\x1b[31m"),
    *("'; DROP TABLE batches; --", '"', "\\", "\\u0000", "%s %(x)s {x} $1", "=cmd|' /C calc'!A0", "\\N", "\\.", "\r\n", "null"),
    *("x" * 200, "x" * 201, "\U0010ffff" * 200, "x" * 65_536, "x" * 65_537, "\u00e9" * 32_769, "a\u0300" * 5000),
)  # fmt: skip
HEADERS: tuple[Headers, ...] = (
    (),
    (("traceparent", b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01"), ("tracestate", b"a=b")),
    (("traceparent", b"\xff\x00"), ("tracestate", None), ("ce_id", b"\xff")),
    (("", b""), ("\x00", b"\x00"), ("\u202e", None), ("twice", b"1"), ("twice", b"2")),
    (("streamer_error_code", b"forged"), ("__connect.errors.topic", None), ("streamer_truncated", b"\x00")),
    (("n" * 5000, b"v" * 5000), (r"\xed\xa0\x80", b"x")),
)
KEYS = (None, b"", b"k", b"\x00\xff", b"k" * 5000)
TIMESTAMPS = (1_700_000_000_000, -1, 0, -(2**63), 2**63 - 1, 253_402_300_800_000)
_FREE: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"": {}}, [None] * 3, {"id": "a"})


class Publisher:
    """A hostile publisher.

    Parameters
    ----------
    gates : whose batches and labels it publishes.
    dimension : of embeddings that are right.
    """

    def __init__(self, gates: Sequence[str], seed: int, *, dimension: int = 8) -> None:
        self._gates = gates
        self._rng = random.Random(seed)
        self._dimension = dimension
        self._examples = {
            label: [path.read_bytes() for path in sorted((EXAMPLES / name).rglob("*.json"))]
            for label, name in ((False, "responses"), (True, "labels"))
        }

    def messages(self, count: int) -> Iterator[Message]:
        rng = self._rng
        blind = {
            label: mutations(
                [*examples, *(self._text(self._label(n) if label else self._batch(n)) for n in range(20))],
                count,
                seed=rng.randrange(2**32),
            )
            for label, examples in self._examples.items()
        }
        earlier: deque[tuple[bool, bytes | None]] = deque(maxlen=100)
        value: bytes | None
        for number in range(count):
            label = rng.random() < 0.3
            if earlier and rng.random() < 0.05:
                label, value = rng.choice(earlier)
            elif rng.random() < 0.15:
                value = next(blind[label])
            else:
                content = self._label(number) if label else self._batch(number)
                for _ in range(rng.choice((0, 1, 1, 2, 4))):
                    self._spoil(content)
                value = self._text(content)
                earlier.append((label, value))
            strange = rng.random() < 0.3
            yield Message(
                label,
                rng.choice(KEYS) if strange else b"k",
                value,
                rng.choice(HEADERS) if strange else (),
                rng.choice(TIMESTAMPS) if strange else TIMESTAMPS[0],
            )

    def _batch(self, number: int) -> dict[str, Any]:
        rng = self._rng
        scored, embedded, packed = rng.random() < 0.3, rng.random() < 0.5, rng.random() < 0.5
        # Some repeat an earlier batch, with the same content or another.
        name = number if rng.random() < 0.9 else rng.randrange(number + 1)
        gate, asked = rng.choice(self._gates), name if rng.random() < 0.5 else number
        texts = [f"answer {place}" for place in range(rng.choice((2, 3, 4, 9)))]
        content = an_event(gate, f"batch-{name}", texts, prompt=f"question {asked}")
        for response in content["responses"]:
            if scored:
                response["score"] = Token(repr(rng.random()))
            if embedded:
                numbers = [rng.gauss(0, 1) for _ in range(self._dimension)]
                response["embedding"] = (
                    _base64(numbers) if packed else [Token(repr(number)) for number in numbers]
                )
        if rng.random() < 0.4:
            content["metadata"] = {
                "language": rng.choice(("de", "en", "", 7, None, True)),
                "n": Token("1e300"),
            }
        if rng.random() < 0.3:
            content["references"] = ["one", "two"]
        if rng.random() < 0.4:
            content["created_at"] = "2026-11-20T12:00:00Z"
        if rng.random() < 0.1:
            content["attempt"] = rng.choice((1, 2, 2**31 - 1))
        return content

    def _label(self, number: int) -> dict[str, Any]:
        rng = self._rng
        gate, batch, response = rng.choice(self._gates), rng.randrange(number + 1), rng.randrange(4)
        severity, kind = Token(repr(rng.random())), rng.choice(("human", "lexical"))
        labeller = rng.choice(("ana", "ben"))
        return a_label(gate, f"batch-{batch}", f"r{response}", severity, kind=kind, labeller=labeller)

    def _spoil(self, content: dict[str, Any]) -> None:
        """Put one fault into a message, mostly one that fits where it is put."""
        rng = self._rng
        if rng.random() < 0.25:
            self._spoil_whole(content)
            return
        parent, place = _leaf(content, rng)
        found = parent[place]
        kind = rng.random()
        if kind < 0.1:
            parent[place] = copy.deepcopy(rng.choice(_FREE))
        elif kind < 0.15 and isinstance(parent, dict):
            del parent[place]
        elif kind < 0.25 and isinstance(parent, dict):
            parent[rng.choice((*TEXTS[:40], "x" * 65_537))] = found
        elif isinstance(place, str) and place.endswith("_at"):
            parent[place] = rng.choice(DATES)
        elif isinstance(found, Token | int | float) or kind < 0.3:
            parent[place] = rng.choice(NUMBERS)
        elif isinstance(found, list) and found:
            parent[place] = rng.choice(
                ([], found[:1], found * 2, found * (256 // len(found) + rng.randrange(2)), [*found, None])
            )
        else:
            parent[place] = rng.choice(TEXTS)

    def _spoil_whole(self, content: dict[str, Any]) -> None:
        rng, responses = self._rng, content.get("responses")
        fault = rng.randrange(6)
        if (
            not isinstance(responses, list)
            or not all(isinstance(one, dict) for one in responses)
            or fault == 0
        ):
            depth = rng.choice((1, 60, 61, 62, 63, 64, 65, 200, 3000))
            begin, end = rng.choice((("[", "]"), ('{"d":', "}")))
            deep = {"deep": Token(begin * depth + "1" + end * depth)}
            content["metadata"] = deep if rng.random() < 0.9 else {f"k{i}": i for i in range(5000)}
        elif fault == 1:  # equal after normalisation, or at once
            twins = rng.choice((("\u00e9", "e\u0301"), ("\ufb01", "fi"), ("a", "a"), ("a", "a "), ("A", "a")))
            for response, twin in zip(responses, twins, strict=False):
                response["id"] = twin
        elif fault == 2:
            dimension = rng.choice((0, 1, 2, 3, self._dimension, 4096, 4097))
            embedding: str = Token(f"[{','.join([rng.choice(NUMBERS[:20]).text] * dimension)}]")
            if rng.random() < 0.4:
                number = rng.choice((1.0, 0.0, math.nan, -math.inf, 1e-40, 3e38))
                embedding = _base64([number] * dimension, cut=rng.choice((0, 0, 1, 2)))
            for response in responses:
                response["embedding"] = embedding
        elif fault == 3 and responses:
            rng.choice(responses)["embedding"] = [rng.choice(NUMBERS[:20]) for _ in range(self._dimension)]
        elif fault == 4:
            for response in responses:
                response["text"] = rng.choice((*TEXTS[:4], "same"))
        else:
            for response in responses:
                response["score"] = rng.choice(NUMBERS[:20])

    def _text(self, content: Any) -> bytes:
        ascii_only = self._rng.random() < 0.5
        return _written(content, ascii_only).encode(errors="surrogatepass")


def _base64(numbers: Sequence[float], *, cut: int = 0) -> str:
    data = struct.pack(f"<{len(numbers)}f", *numbers)
    return base64.b64encode(data[: len(data) - cut]).decode()


def _leaf(content: dict[str, Any], rng: random.Random) -> tuple[Any, Any]:
    parent: Any = content
    while True:
        place = rng.choice([*parent]) if isinstance(parent, dict) else rng.randrange(len(parent))
        child = parent[place]
        if not isinstance(child, dict | list) or not child or rng.random() < 0.15:
            return parent, place
        parent = child


def _written(content: Any, ascii_only: bool) -> str:
    """JSON, with tokens as they are."""
    return _TOKEN.sub(r"\1", json.dumps(content, ensure_ascii=ascii_only))
