"""What a run says of severities that counted as more than they are."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from streamer.calibration.history import NO_HISTORY, History
from streamer.calibration.p_values import betting
from streamer.gates.settings import GateSettings
from streamer.recalibration.run import SampleQuery, calibrate_gate
from streamer.recalibration.sampled import SampledGroup
from tests.made import a_revision, a_sampled_prompt

NOW = datetime(2026, 11, 21, tzinfo=UTC)
STRICTER = "can only make the threshold stricter"


class Sample:
    """Groups of one answer each, every other one without a label."""

    def audit_sample(self, query: SampleQuery) -> Sequence[SampledGroup]:
        return [
            a_sampled_prompt((query.gate, f"b{n}"), [("a", n / 50, None if n % 2 else 0.0)])
            for n in range(50)
        ]

    def label_delays(self, gate: str, **_: Any) -> Sequence[float | None]:
        return []

    def undrawn_history(self, query: SampleQuery, *, most: int) -> History:
        return NO_HISTORY


@pytest.mark.parametrize(
    ("method", "said"),
    [("mean", STRICTER), ("hb", STRICTER), ("betting", "so that what is promised holds"),
     ("selective", STRICTER)],
)  # fmt: skip
def test_only_where_it_is_so_the_threshold_is_said_to_be_stricter(method: str, said: str) -> None:
    settings = GateSettings(scorer="external", encoder="none", alpha=0.2, method=method)
    run = calibrate_gate(
        Sample(), a_revision(settings, audit_salt=bytes(32)), now=NOW, severities="highest", diagnostics=False
    )
    assert run.missing == 25
    assert run.guarantee.count(said) == 2
    assert (STRICTER in run.guarantee) == (said == STRICTER)


def test_a_larger_loss_may_help_a_bet() -> None:
    rng = np.random.default_rng(7)
    for _ in range(20_000):
        losses = np.where(rng.random(113) < 0.1, rng.random(113), 0.0)
        larger = losses.copy()
        larger[rng.integers(113)] = 1.0
        before, after = betting(np.vstack([losses, larger]), 0.05, 0.1)
        if after < before - 1e-9:
            return
    raise AssertionError("then the text may say more")
