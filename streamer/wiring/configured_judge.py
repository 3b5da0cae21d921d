"""The configured judge, for whoever asks it for scores."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamer.labels.judge.client import Judge
    from streamer.settings.settings import Settings


@contextmanager
def judge(settings: Settings) -> Iterator[Judge]:
    """Give the configured judge; what it is asked when the block ends is cancelled."""
    from streamer.labels.judge.client import Judge
    from streamer.labels.kinds.judge import judge_endpoint

    with Judge(judge_endpoint(settings)) as asked:
        yield asked
