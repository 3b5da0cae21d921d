"""Messages that are nearly right, by the thousand: each is read or refused by a code, quickly; nothing else happens.

`make faults` tries a hundred thousand.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from streamer.errors import BadMessage
from streamer.events import codes
from streamer.events.labels import decode_label
from streamer.events.responses import decode_responses, encode_responses
from tests.unit.events.mutations import EXAMPLES, mutations

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 100_000 if os.environ.get("STREAMER_TEST_FAULTS") == "long" else 10_000


@pytest.mark.parametrize(
    ("name", "decode"),
    [("responses", decode_responses), ("labels", decode_label)],
    ids=["responses", "labels"],
)
@pytest.mark.timeout(60 + COUNT / 200)
def test_every_message_is_read_or_refused(name: str, decode: Callable[[bytes | None], object]) -> None:
    examples = [path.read_bytes() for path in sorted((EXAMPLES / name).rglob("*.json"))]
    assert examples
    became: Counter[str] = Counter()
    slowest = 0.0
    for value in mutations(examples, COUNT, seed=1):
        began = time.perf_counter()
        refusal = None
        try:
            decode(value)
        except BadMessage as bad:
            refusal = bad
        became["read" if refusal is None else refusal.code] += 1
        if refusal is not None:
            assert refusal.code in codes.MEANINGS
            assert len(refusal.detail) <= 300
            assert refusal.detail.isprintable()
        slowest = max(slowest, time.perf_counter() - began)
    print(f"\n{COUNT} messages, the slowest in {slowest * 1000:.1f} ms: {dict(became.most_common())}")
    assert became["read"] > COUNT / 100, "the mutations leave nothing that is right"
    assert len(became) > 4, "the mutations all fail in the same way"
    assert slowest < 2.0, "a message of a few kilobytes took seconds"


def test_what_is_read_can_be_written_and_read_again() -> None:
    examples = [path.read_bytes() for path in sorted((EXAMPLES / "responses").rglob("*.json"))]
    for value in mutations(examples, COUNT // 4, seed=2):
        try:
            event = decode_responses(value)
        except BadMessage:
            continue
        assert decode_responses(encode_responses(event)) == event
