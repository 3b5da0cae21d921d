"""What `streamer recalibrate` says of a threshold that ships little."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from streamer.calibration.history import NO_HISTORY, History
from streamer.cli.policies import NOTHING_PROMISED, promise_text
from streamer.cli.recalibrate import why_closed, why_little
from streamer.gates.settings import GateSettings
from streamer.recalibration.run import SampleQuery, calibrate_gate
from streamer.recalibration.sampled import SampledGroup
from tests.made import a_revision, a_sampled_prompt

NOW = datetime(2026, 11, 20, tzinfo=UTC)
GATE = a_revision(GateSettings(alpha=0.1, encoder="e"), gate="x")


class Sample:
    """An audit sample of one response a batch, with scores that rise evenly to 1."""

    def __init__(self, severities: Sequence[float | None]) -> None:
        self._severities = severities

    def audit_sample(self, query: SampleQuery) -> list[SampledGroup]:
        count = len(self._severities)
        return [
            a_sampled_prompt((query.gate, f"b{n}"), [("a", (n + 1) / count, severity)])
            for n, severity in enumerate(self._severities)
        ]

    def label_delays(self, gate: str, **_: object) -> list[float | None]:
        return []

    def undrawn_history(self, query: SampleQuery, *, most: int) -> History:
        return NO_HISTORY

    def record_run(self, *_: object, **__: object) -> None:
        raise AssertionError("nothing is recorded here")


@pytest.mark.parametrize(
    ("severities", "expected"),
    [
        ([1.0] * 10 + [0.0] * 20, ()),
        ([1.0] * 15, ("hardly anything will ship",)),
        ([None] * 10 + [0.0] * 20, ("10 of 30 drawn responses have no label", "label queue --gate x")),
        ([None] * 15, ("hardly anything will ship", "15 of 15 drawn responses have no label")),
    ],
    ids=["as it should be", "all wrong", "some unlabelled", "none labelled"],
)
def test_what_makes_a_gate_ship_little_is_said(
    severities: Sequence[float | None], expected: Sequence[str]
) -> None:
    run = calibrate_gate(Sample(severities), GATE, now=NOW)  # type: ignore[arg-type]
    assert run.decided.state == "cut"
    reason = why_little(run)
    assert (reason is not None) == bool(expected)
    assert all(part in str(reason) for part in expected)


@pytest.mark.parametrize(
    ("settings", "groups", "expected"),
    [
        ({"alpha": 0.05}, 18, "needs at least 19 labelled groups, and there are 18"),
        ({"alpha": 0.05, "method": "hb"}, 44, "by method hb needs at least 45 labelled groups"),
        ({"alpha": 0.05, "method": "betting"}, 47, "by method betting needs at least 48 labelled groups"),
        (
            {"alpha": 0.05, "method": "age", "rho": 0.9},
            150,
            "add up to 10, which supports no budget below 9.09 %",
        ),
        ({"alpha": 0.3, "max_attempts": 3}, 8, "a budget of 10 % by method mean"),
    ],
)
def test_it_says_what_would_open_a_closed_gate(settings: dict[str, Any], groups: int, expected: str) -> None:
    gate = replace(GATE, settings=GateSettings(encoder="e", **settings))
    run = calibrate_gate(Sample([0.0] * groups), gate, now=NOW)
    assert run.decided.state == "closed"
    assert expected in why_closed(run)


@pytest.mark.parametrize(("method", "groups"), [("mean", 19), ("hb", 45), ("betting", 48)])
def test_the_numbers_of_groups_are_exact(method: str, groups: int) -> None:
    gate = replace(GATE, settings=GateSettings(encoder="e", alpha=0.05, method=method))
    states = [
        calibrate_gate(Sample([0.0] * count), gate, now=NOW).decided.state for count in (groups - 1, groups)
    ]
    assert states[0] == "closed"
    assert method == "betting" or states[1] != "closed"


def test_a_guarantee_is_shown_in_part_unless_it_is_asked_for() -> None:
    run = calibrate_gate(Sample([0.0] * 20), GATE, now=NOW)
    short, whole = (promise_text(run.guarantee, explain=explain) for explain in (False, True))
    assert "Not promised: " in whole
    assert "Not promised: " not in short
    assert short.splitlines()[0] == whole.splitlines()[0]
    assert "--explain" in short
    assert promise_text("", explain=False) == NOTHING_PROMISED
