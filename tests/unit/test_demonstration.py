"""What the demo refuses before it starts anything."""

from dataclasses import replace

import pytest

from streamer.cli.dev.demonstration import check
from streamer.clouds.simulation import simulate_clouds
from streamer.errors import UsageError
from streamer.events.limits import Limits

CLOUDS = simulate_clouds(seed=0, clouds=3, responses=3)
UNLABELLED = [replace(c, responses=tuple(replace(r, severity=None) for r in c.responses)) for c in CLOUDS]


def test_what_can_be_shown_passes() -> None:
    check(CLOUDS, Limits())


@pytest.mark.parametrize(
    ("clouds", "limits", "hint"),
    [
        (CLOUDS[:1], Limits(), "1 cloud is too few"),
        (UNLABELLED, Limits(), "no response has a label"),
        (CLOUDS, Limits(max_responses=2), "the batch has 3 responses, at most 2"),
        (CLOUDS, Limits(max_text_bytes=1), f"question '{CLOUDS[0].question_id}' would be refused"),
    ],
)
def test_what_cannot_be_shown_is_refused_at_once(clouds, limits: Limits, hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        check(clouds, limits)
