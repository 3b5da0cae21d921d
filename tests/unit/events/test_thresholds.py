"""Policies on the topic: what is not known is refused by name, whole, so that the last good policy serves on."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import streamer.events
from streamer.errors import BadMessage
from streamer.events import codes
from streamer.events.codec import encode
from streamer.events.thresholds import decode_threshold, policy_from_event, threshold_event
from streamer.gates.settings import GateSettings

EXAMPLES = Path(streamer.events.__file__).parent / "examples" / "thresholds" / "v1"
FIRST = json.loads((EXAMPLES / "closed_uncalibrated.json").read_bytes())


def written(**changes: Any) -> dict[str, Any]:
    """The first example as it is written today, with some settings of today."""
    policy = policy_from_event(decode_threshold(json.dumps(FIRST).encode()))
    settings = GateSettings(**policy.settings.flat() | changes)
    return json.loads(encode(threshold_event(replace(policy, settings=settings))))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scorer": "of-tomorrow"}, "scorer must be one of gram, .* not 'of-tomorrow'"),
        ({"method": "of-tomorrow"}, "method must be one of mean, .* not 'of-tomorrow'"),
        ({"shape": "of-tomorrow"}, "shape must be one of indicator, .* not 'of-tomorrow'"),
        (
            {"parameters": {"of_tomorrow": 1}},
            "parameters must be those of a method or a shape, not 'of_tomorrow'",
        ),
    ],
)
def test_what_is_not_known_is_refused_by_name(changes: dict[str, Any], said: str) -> None:
    event = decode_threshold(json.dumps(written() | changes).encode())
    with pytest.raises(BadMessage, match=said) as refused:
        policy_from_event(event)
    assert refused.value.code == codes.INVALID_FIELD


def test_a_field_of_tomorrow_is_passed_over() -> None:
    plain = decode_threshold(json.dumps(written()).encode())
    assert decode_threshold(json.dumps(written() | {"of_tomorrow": {"a": [1]}}).encode()) == plain
