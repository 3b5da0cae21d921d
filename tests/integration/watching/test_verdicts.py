"""What the service says of a gate's budget: over open time, under the policy in force, and never ahead of its labels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from typer.testing import CliRunner

from streamer.cli.app import app
from tests.integration.watching.conftest import GATE, MINUTE, START, Traffic

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

CLOSED = {"state": "closed", "calibrated": True, "threshold": None}


def said(
    traffic: Traffic, monkeypatch: pytest.MonkeyPatch, now: Any, *arguments: str
) -> tuple[str, dict[str, Any]]:
    """What `streamer risk` prints, and its JSON, when the clock shows `now`."""
    monkeypatch.setenv("STREAMER_DATABASE_URL", traffic.world.url)
    monkeypatch.setattr("streamer.wiring.now", lambda: now)
    texts = []
    for options in ((), ("--json",)):
        done = CliRunner().invoke(app, ["risk", GATE, *options])
        assert done.exit_code == 0, done.output
        texts.append(done.stdout)
    return texts[0], json.loads(texts[1])


def test_a_closed_phase_and_five_labels_are_too_early_for_a_verdict(
    new_traffic: Callable[..., Traffic], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The closed phase alone used to bring the bound inside the budget."""
    rng = np.random.default_rng(71)
    traffic = new_traffic(alpha=0.1, audit_probability=0.2)
    traffic.open_gate(**CLOSED)
    traffic.decide(201, rng=rng)
    traffic.open_gate()
    traffic.decide(145, rng=rng, start=START + 201 * MINUTE, sampled=False)
    drawn = traffic.decide(5, rng=rng, start=START + 346 * MINUTE, sampled=True)
    traffic.label(drawn, lambda _: 0.0, at=START + 352 * MINUTE)
    now = START + 353 * MINUTE
    traffic.watcher().watch(GATE, now=now)
    text, values = said(traffic, monkeypatch, now)
    assert values["verdict"] == "not known yet"
    print(text)
    assert text.startswith(
        f"{GATE}: not known yet whether the budget is kept: 5 labelled shipped answers are too few;"
    )
