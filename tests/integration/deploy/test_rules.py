"""promtool accepts configuration and rules, and every alert fires where it must and keeps still where it must not."""

import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamer.events.alerts import OTHER_CAUSES
from tests import programs, promql
from tests.services.requirements import missing

CASES = sorted((promql.PROMETHEUS / "tests").glob("*.yml"))
ALERTS = {rule["alert"]: rule for rule in promql.rules_of(promql.RULE_FILES[1])}
SEVERITIES = {"critical", "warning", "info", "none"}


def promtool(*arguments: object) -> str:
    """Run promtool and return what it says; anything but success fails the test."""
    if shutil.which("promtool") is None:
        missing("no promtool", "apt-get install prometheus")
    done = programs.run("promtool", *arguments)
    return done.stdout + done.stderr


def test_configuration_and_rules_are_valid():
    said = promtool("check", "config", promql.PROMETHEUS / "prometheus.yml")
    assert f"{len(ALERTS)} rules found" in said
    promtool("check", "rules", "--lint=all", "--lint-fatal", *promql.RULE_FILES)


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_rules_do_what_they_say(file: Path):
    assert "SUCCESS" in promtool("test", "rules", file)


@cache
def tried() -> list[dict[str, Any]]:
    return [
        case
        for file in CASES
        for test in yaml.load(file.read_bytes(), yaml.CSafeLoader)["tests"]
        for case in test.get("promql_expr_test", [])
    ]


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_is_tried_firing_and_quiet(alert: str):
    cases = [case for case in tried() if f'alertname="{alert}"' in case["expr"]]
    assert any(case["exp_samples"] for case in cases)
    if alert != "StreamerDeadMansSwitch":
        assert any(not case["exp_samples"] for case in cases)


def test_every_recording_rule_is_tried():
    asked = {name for case in tried() for name in promql.metrics_used(case["expr"])}
    recorded = {rule["record"] for rule in promql.rules_of(promql.RULE_FILES[0])}
    assert recorded <= asked


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_says_how_grave_what_and_where_to_look(alert: str):
    rule = ALERTS[alert]
    assert rule["labels"].keys() - {"incident"} == {"severity"}
    assert rule["labels"].get("incident", "answers") in {"answers", *OTHER_CAUSES.values()}
    assert rule["labels"]["severity"] in SEVERITIES
    assert {"for", "keep_firing_for"} <= rule.keys()
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{alert.lower()}"
    assert len(rule["annotations"]["summary"]) <= 120


def test_the_runbook_has_a_section_for_each_alert_and_no_other():
    page = (promql.ROOT / "docs" / "runbook.md").read_text("utf-8")
    sections = re.findall(r"^### (Streamer\w+)$", page, re.MULTILINE)
    assert sorted(sections) == sorted(ALERTS)
    for name in sections:
        body = page.split(f"### {name}\n", 1)[1].split("\n#", 1)[0]
        for part in ("**Means.**", "**Look.**", "**Do.**"):
            assert part in body, f"{name} lacks {part}"


def test_no_alert_compares_an_estimate_with_the_budget():
    estimates = {"gate:streamer_exposure_risk_ratio:leader", "streamer_exposure_risk_ratio"}
    estimates |= {"gate:streamer_budget_used_ratio:leader", "streamer_budget_used_ratio"}
    for rule in ALERTS.values():
        assert not promql.metrics_used(rule["expr"]) & estimates
