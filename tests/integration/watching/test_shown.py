"""What operators see of the risk: metrics from the state, also right after a restart, and words on the command line."""

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from streamer.cli.app import app
from streamer.telemetry.catalogue import RISK_GAUGES
from streamer.telemetry.recalibrator_metrics import RecalibratorMetrics, RiskMetrics
from streamer.wording.verdicts import facts
from tests.integration.watching.conftest import DAY, GATE, MINUTE, START, Traffic


def scraped(metrics: RecalibratorMetrics) -> dict[str, float]:
    lines = metrics.exposition().decode().splitlines()
    found = (re.fullmatch(r"streamer_(\S+) (\S+)", line) for line in lines)
    return {match[1]: float(match[2]) for match in found if match is not None}


def of_gates(metrics: RecalibratorMetrics) -> set[str]:
    return {name for name in scraped(metrics) if f'gate="{GATE}"' in name and "runs_total" not in name}


def watched(traffic: Traffic, now: Any = START + DAY) -> RecalibratorMetrics:
    metrics = RecalibratorMetrics()
    watcher = traffic.watcher(RiskMetrics(metrics.of))
    watcher.round([traffic.store.gates.get(GATE)], now=now)
    return metrics


def test_gauges_are_absent_until_something_is_known_and_there_at_once_after_a_restart(
    light_traffic: Callable[..., Traffic],
) -> None:
    traffic = light_traffic()
    metrics = watched(traffic, START)
    assert {name.partition("{")[0] for name in of_gates(metrics)} == {
        "risk_read_through_timestamp_seconds",
        "late_labels",
        "audit_probability_ratio",
        "extra_labels_today",
    }
    decided = traffic.decide(80, rng=np.random.default_rng(51))
    traffic.label(decided[:9], lambda _: 0.0)
    assert f'budget_remaining_seconds{{gate="{GATE}"}}' in scraped(watched(traffic, START + 80 * MINUTE))
    traffic.label(decided[9:], lambda _: 1.0)
    watched(traffic)  # the alarm closes the gate: what follows is of the closed one
    first = scraped(watched(traffic))
    again = scraped(watched(traffic))
    assert again == first
    report = traffic.watcher().watch(GATE, now=START + DAY)
    assert report.exposure is not None
    assert report.burn is not None
    label = f'{{gate="{GATE}"}}'
    assert first["exposure_risk_lower_ratio" + label] == report.exposure.lower
    assert first["exposure_risk_ratio" + label] == report.exposure.estimate
    assert first["monitored_decisions" + label] == 80
    assert first["budget_used_ratio" + label] == report.burn.used
    assert "at this rate" not in dict(facts(report, None))["budget used"]
    assert first[f'alarm_raised{{alarm="risk",gate="{GATE}"}}'] == 1
    assert first[f'alarm_raised{{alarm="draws",gate="{GATE}"}}'] == 0
    assert first[f'alarm_evidence_ratio{{alarm="risk",gate="{GATE}"}}'] >= 1
    assert first[f'alarm_raised_timestamp_seconds{{alarm="risk",gate="{GATE}"}}'] == (START + DAY).timestamp()
    assert first[f'alerts_total{{gate="{GATE}",kind="risk"}}'] == 1
    forecast = {"budget_remaining_seconds", "budget_remaining_soonest_seconds"}
    assert {name for name in RISK_GAUGES if f"{name}{label}" not in first} == forecast


def test_who_stands_by_shows_nothing_and_a_gate_that_is_gone_neither(
    light_traffic: Callable[..., Traffic],
) -> None:
    traffic = light_traffic()
    traffic.label(traffic.decide(80, rng=np.random.default_rng(51)), lambda _: 1.0)
    metrics = RecalibratorMetrics()
    watcher = traffic.watcher(RiskMetrics(metrics.of))
    gates = [traffic.store.gates.get(GATE)]
    for hide in (watcher.stand_by, lambda: watcher.round([], now=START + DAY)):
        watcher.round(gates, now=START + DAY)
        assert len(of_gates(metrics)) > 20
        hide()
        assert {name.partition("{")[0] for name in of_gates(metrics)} == {"alerts_total"}


def test_one_gates_trouble_is_no_others(
    light_traffic: Callable[..., Traffic], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = light_traffic()
    traffic.store.gates.create("second", traffic.settings(), by="ana", reason="")
    traffic.decide(4, rng=np.random.default_rng(52), sampled=False)
    metrics = RecalibratorMetrics()
    watcher = traffic.watcher(RiskMetrics(metrics.of))
    standing = traffic.store.monitoring.standing
    monkeypatch.setattr(
        traffic.store.monitoring, "standing", lambda gate: standing(gate) if gate == GATE else 1 / 0
    )
    told: list[str] = []
    monkeypatch.setattr(
        "streamer.risk.rounds.watch.log",
        type(
            "Log",
            (),
            {"exception": lambda _self, event, **_: told.append(event), "info": lambda *_, **__: None},
        )(),
    )
    watcher.round(traffic.store.gates.list(), now=START)
    assert told == ["watching.gate_failed"]
    assert of_gates(metrics)


def command(traffic: Traffic, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setenv("STREAMER_DATABASE_URL", traffic.world.url)
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_line_says_it_in_words(
    light_traffic: Callable[..., Traffic], monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = light_traffic()
    assert "not monitored yet" in command(traffic, monkeypatch, "risk", GATE)
    traffic.label(traffic.decide(80, rng=np.random.default_rng(51)), lambda _: 1.0)
    traffic.watcher().watch(GATE, now=START + DAY)
    text = command(traffic, monkeypatch, "risk")
    assert text.startswith(f"{GATE}: ALARM: risk, since ")
    assert "The budget was BROKEN" in text
    assert "ALARM: risk" in text
    assert "closed the gate by policy 3" in text
    said = json.loads(command(traffic, monkeypatch, "risk", GATE, "--json"))
    assert list(said)[:3] == ["gate", "verdict", "service"]
    assert (said["verdict"], said["service"]["period"]["decisions"], said["watched"]) == ("broken", 80, True)
    assert said["open_or_closed"]["exposure"]["decisions"] == 80
    assert "exposure" not in said, "a figure that closed phases thin out is named so"
    view = traffic.world.rows("SELECT budget_is, decisions, alarms_raised FROM v_risk_intervals")
    assert view == [("broken", 80, 1)]

    listed = command(traffic, monkeypatch, "alert", "list", "--json").splitlines()
    alert = next(one for one in map(json.loads, listed) if one["kind"] == "risk")
    done = command(
        traffic, monkeypatch, "alert", "acknowledge", alert["alert_id"][:8], "--reason", "template", "--by", "ana"
    )  # fmt: skip
    assert done.startswith("Acknowledged by ana")
    assert "risk" not in [
        json.loads(one)["kind"]
        for one in command(traffic, monkeypatch, "alert", "list", "--open", "--json").splitlines()
    ]
    traffic.watcher().watch(GATE, now=START + DAY + MINUTE)
    assert "alarm: risk" in command(traffic, monkeypatch, "risk")
    assert "ALARM" not in command(traffic, monkeypatch, "risk")
    nothing = light_traffic(audit_probability=0.0)
    assert "audit probability is 0" in command(nothing, monkeypatch, "risk")


def test_the_view_counts_open_time_alone_also_of_a_period_that_is_over(
    light_traffic: Callable[..., Traffic],
) -> None:
    traffic = light_traffic(budget_period_days=1.0)
    rng = np.random.default_rng(52)

    def figures(now: datetime) -> list[tuple[Any, ...]]:
        traffic.watcher().watch(GATE, now=now)
        rows = "SELECT decisions, labelled, exposure, budget_is FROM v_risk_intervals ORDER BY sequence"
        return [tuple(row) for row in traffic.world.rows(rows)]

    opened = traffic.decide(40, rng=rng)
    traffic.label(opened, lambda _: 0.25)
    labelled = sum(one.sampled for one in opened)
    first = figures(START + DAY / 4)
    assert [row[:2] for row in first] == [(40, labelled)]
    traffic.open_gate(state="closed")
    traffic.decide(300, rng=rng, start=START + DAY / 2, every=MINUTE / 10)
    assert figures(START + 2 * DAY / 3) == first, "a closed phase of any length changes nothing"
    traffic.decide(300, rng=rng, start=START + 2 * DAY, every=MINUTE / 10)
    assert figures(START + 3 * DAY) == [*first, (0, 0, None, "not known yet")]
