"""What the service says of a gate's budget: over open time, under the policy in force, and never ahead of its labels."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from streamer.cli.app import app
from streamer.telemetry.recalibrator_metrics import RecalibratorMetrics, RiskMetrics
from tests.integration.watching.conftest import DAY, GATE, MINUTE, START, Traffic
from tests.integration.watching.test_shown import scraped

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
    assert text.startswith(
        f"{GATE}: not known yet whether the budget is kept: 5 labelled shipped answers are too few;"
    )


def test_what_needs_no_label_is_said_at_once(
    new_traffic: Callable[..., Traffic], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed phase, then answers that shipped and wait for their labels behind held ones that need none."""
    rng = np.random.default_rng(76)
    traffic = new_traffic(alpha=0.1, audit_probability=1.0)
    traffic.open_gate(**CLOSED)
    traffic.decide(80, rng=rng, outcome="abstain", reason="no_threshold")
    traffic.open_gate()
    start = START + 80 * MINUTE
    traffic.decide(9, rng=rng, start=start, shipped=0.0, reason="scored")
    unread = said(traffic, monkeypatch, start + 9 * MINUTE)[0].splitlines()[0]
    assert unread.startswith(f"{GATE}: 89 decided, none shipped; not monitored yet")
    shipped = traffic.decide(11, rng=rng, start=start + 9 * MINUTE)
    now = start + 20 * MINUTE
    watcher, metrics = traffic.watcher(), RecalibratorMetrics()
    watcher.watch(GATE, now=now)
    text, values = said(traffic, monkeypatch, now)
    assert text.splitlines()[0].startswith(
        f"{GATE}: not known yet whether the budget is kept: 11 shipped, none of these labelled yet."
    )
    assert "0 %, between 0 % and 0 %" not in text
    assert "nothing has shipped" not in text
    assert values["decided"]["held"] == {"no_threshold": 80, "scored": 9}
    counts = ("decided", "shipped", "labelled")
    assert [values["decided"][name] for name in counts] == [100, 11, 0]
    hours = [(one["decided"], one["shipped"]) for one in values["decided"]["hours"]]
    assert hours == [(60, 0), (40, 11)]
    # The metrics, and `streamer dev` after them, do not say that nothing is at risk.
    report = traffic.store.monitoring.judged(GATE, now=now)
    assert report is not None
    RiskMetrics(metrics.of).show_risk(report)
    assert f'open_exposure_risk_ratio{{gate="{GATE}",over="policy"}}' not in scraped(metrics)
    traffic.label(shipped[:1], lambda _: 0.0, at=now)
    assert said(traffic, monkeypatch, now)[1]["decided"]["labelled"] == 1


def test_kept_only_while_reading_reaches_to_now(
    new_traffic: Callable[..., Traffic], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(72)
    traffic = new_traffic(alpha=0.1, audit_probability=0.5)
    made = traffic.decide(300, rng=rng)
    traffic.label(made, lambda _: 0.0, at=START + 300 * MINUTE)
    now = START + 301 * MINUTE
    traffic.watcher().watch(GATE, now=now)
    text, values = said(traffic, monkeypatch, now)
    assert text.startswith(f"{GATE}: the budget was kept under policy 2: exposure 0 %, at most ")
    assert (values["verdict"], values["service"]["present"]["decisions"]) == ("kept", 300)
    # The recalibrator is down. Nothing was decided since: all there is has been read.
    assert said(traffic, monkeypatch, now + 3 * DAY)[1]["verdict"] == "kept"
    # Decisions come, and nobody reads them.
    traffic.decide(20, rng=rng, start=now, sampled=False)
    text, values = said(traffic, monkeypatch, now + 3 * DAY)
    assert (values["verdict"], values["service"]["reason"]) == ("not known yet", "reading stands still")
    assert "20 decisions wait for `streamer recalibrator`" in text.splitlines()[0]
    # It is back, and catches up.
    traffic.watcher().watch(GATE, now=now + 3 * DAY)
    assert said(traffic, monkeypatch, now + 3 * DAY)[1]["verdict"] == "kept"


def test_traffic_of_other_gates_is_no_backlog(
    light_traffic: Callable[..., Traffic], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decisions of all gates are numbered together: a gate is read as far as the newest of any."""
    rng = np.random.default_rng(75)
    traffic = light_traffic(alpha=0.1, audit_probability=0.5)
    mine = traffic.policy
    traffic.store.gates.create("other", traffic.settings(), by="ana", reason="")
    others = traffic.store.policies.newest("other")
    watcher, gates = traffic.watcher(), traffic.store.gates.list()
    now, verdicts, read = START, [], []
    for place in range(8):
        traffic.policy = mine
        traffic.label(traffic.decide(50, rng=rng, start=now), lambda _: 0.0, at=now + 50 * MINUTE)
        traffic.policy = others
        traffic.decide(5, rng=rng, start=now + 50 * MINUTE, sampled=False)
        now += 51 * MINUTE
        watcher.round(gates, now=now)
        values = said(traffic, monkeypatch, now)[1]
        verdicts.append((values["verdict"], values["service"]["reason"]))
        read.append(55 * (place + 1))
        watch = traffic.store.monitoring.watch(GATE)
        assert (watch.read, watch.service.read) == (read[-1], read[-1])
    assert {reason for _, reason in verdicts} <= {"", "too few labels"}
    assert verdicts[-1] == ("kept", "")


def test_a_label_that_is_missing_is_named_and_holds_no_verdict_up(
    new_traffic: Callable[..., Traffic], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(73)
    traffic = new_traffic(alpha=0.1, audit_probability=0.5)
    made = traffic.decide(300, rng=rng)
    for one in made:  # labels take about a minute
        place = int(one.key.batch_id.split("-")[-1])
        traffic.label([one], lambda _: 0.0, at=START + (place + 1) * MINUTE)
    traffic.decide(2, rng=rng, start=START + 300 * MINUTE, sampled=True)
    traffic.decide(30, rng=rng, start=START + 302 * MINUTE, sampled=False)
    metrics = RecalibratorMetrics()
    watcher = traffic.watcher(RiskMetrics(metrics.of))
    gates = [traffic.store.gates.get(GATE)]
    label = f'{{gate="{GATE}"}}'
    for minutes in (301, 340, 341):
        now = START + minutes * MINUTE
        watcher.round(gates, now=now)
        assert scraped(metrics)["budget_verdict" + label] == 1, minutes
        text, values = said(traffic, monkeypatch, now)
        assert values["verdict"] == "kept", minutes
    assert values["service"]["label_lag_seconds"] == 60.0
    assert text.splitlines()[0].endswith(" 2 labels are missing, the oldest since 2026-11-20 17:00:00Z.")
    assert scraped(metrics)[f'open_prompts{{gate="{GATE}",over="policy"}}'] == 332


def test_every_command_that_speaks_of_a_gate_begins_with_its_verdict(
    new_traffic: Callable[..., Traffic], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(74)
    traffic = new_traffic(alpha=0.1, audit_probability=0.5, on_alarm="report")
    traffic.label(traffic.decide(100, rng=rng), lambda _: 1.0)
    traffic.open_gate()
    traffic.label(traffic.decide(10, rng=rng, start=START + 100 * MINUTE), lambda _: 0.0)
    now = START + 111 * MINUTE
    traffic.watcher().watch(GATE, now=now)
    text, values = said(traffic, monkeypatch, now)
    first = text.splitlines()[0]
    assert first.startswith(f"{GATE}: ALARM: risk, since 2026-11-20 13:51:00Z; nobody has acknowledged it: ")
    assert ". The budget was BROKEN in this period: exposure " in first
    assert "policy 3" in text
    assert "before, policy 2" in text
    promised = CliRunner().invoke(app, ["risk", GATE, "--explain"])
    assert promised.stdout.startswith(text.rstrip("\n"))
    guarantee = traffic.store.policies.newest(GATE).guarantee
    told = promised.stdout.removeprefix(text.rstrip("\n"))
    assert " ".join(told.split()) == (guarantee or "Nothing is promised and nothing ships.")
    assert values["service"]["before"]["decisions"] == 100
    for arguments in (("threshold", "show", GATE), ("recalibrate", GATE, "--dry-run")):
        done = CliRunner().invoke(app, list(arguments))
        assert done.exit_code == 0, done.output
        assert done.stdout.splitlines()[0] == first
        done = CliRunner().invoke(app, [*arguments, "--json"])
        assert json.loads(done.stdout)["verdict"] == "broken"
