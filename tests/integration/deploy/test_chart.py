"""The Helm chart: its values by its schema and the program; with `make deploy-tests` also by Helm, kubeconform and promtool."""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.helm import generate
from streamer.stream.ending import STOP_SECONDS
from tests import programs
from tests.integration.deploy.test_compose import OURS
from tests.integration.deploy.test_rules import promtool
from tests.promql import DASHBOARDS, PROMETHEUS, ROOT, RULE_FILES
from tests.told import Told

HELM, TOOLS = ROOT / "deploy" / "helm", ROOT / ".services" / "helm"
CHART = HELM / "streamer"
FILES = {"values": CHART / "values.yaml"} | {path.stem: path for path in HELM.glob("*.yaml")}
each_file = pytest.mark.parametrize("name", FILES)
with_tools = pytest.mark.skipif(not (TOOLS / ".built").exists(), reason="`make deploy-tests` builds Helm")
MISSPELT = {
    "a setting": "settings: {kafka: {partitons: 4}}",
    "a component": "components: {wroker: {replicas: 4}}",
    "a field": "components: {worker: {replica: 4}}",
    "a secret": "secrets: {database.ulr: {name: streamer, key: url}}",
    "a secret as a text": "components: {recalibrator: {settings: {alerts: {smtp_password: x}}}}",
    "a setting as a variable": "env: {STREAMER_KAFKA_GROUP_ID: x}",
    "an ingress of no host": "components: {serve: {ingress: {enabled: true}}}",
}
misspelt = pytest.mark.parametrize("text", MISSPELT.values(), ids=MISSPELT)


def over(one: Any, other: Any) -> Any:
    """Values as Helm puts them over others."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return other
    return one | {name: over(one.get(name), value) for name, value in other.items()}


def values(text: str) -> Any:
    return over(yaml.safe_load(FILES["values"].read_text("utf-8")), yaml.safe_load(text))


def test_the_schema_has_the_settings_of_the_program():
    assert generate.SCHEMA.read_text("utf-8") == generate.schema(), "python -m deploy.helm.generate"


@each_file
def test_what_values_name_is_there(name: str, told: Told):
    found = values(FILES[name].read_text("utf-8"))
    jsonschema.validate(found, json.loads(generate.SCHEMA.read_text("utf-8")))
    rows = found["components"] | found["jobs"]
    assert OURS.keys() - rows.keys() == {"cli", "demo-gate", "demo-traffic"}
    for row in rows.values():
        said = told(*(word for word in row["command"] if word[0] != "-"), "--help").out
        assert all(word.partition("=")[0] in said for word in row["command"] if word[0] == "-")
        if "metrics" in row.get("ports", {}):
            assert row["gracePeriodSeconds"] >= STOP_SECONDS + row.get("pauseSeconds", 0) + 5
            assert row["ports"]["metrics"] == found["settings"]["http"]["port"]


@misspelt
def test_the_schema_refuses(text: str):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values(text), json.loads(generate.SCHEMA.read_text("utf-8")))


def run(tool: str, *arguments: object) -> str:
    """Run a tool and return what it says; anything but success is an `AssertionError`."""
    asked = [TOOLS / tool, *map(str, arguments)]
    done = programs.run(*asked)
    return done.stdout


@cache
def rendered(name: str) -> str:
    return run("helm", "template", "try", CHART, "--values", FILES[name])


@with_tools
@each_file
def test_kubernetes_knows_every_field(name: str, tmp_path: Path):
    run("helm", "lint", "--strict", CHART, "--values", FILES[name])
    (tmp_path / "all.yaml").write_text(rendered(name), "utf-8")
    schemas = f"{TOOLS}/schemas/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    said = run("kubeconform", "-strict", "-summary", "-schema-location", schemas, tmp_path / "all.yaml")
    assert f"{len(list(filter(None, yaml.safe_load_all(rendered(name)))))} resources found" in said
    assert "Errors: 0, Skipped: 0" in said


@with_tools
@misspelt
def test_helm_refuses(text: str, tmp_path: Path):
    (tmp_path / "values.yaml").write_text(text, "utf-8")
    with pytest.raises(AssertionError, match="values don't meet the specifications of the schema"):
        run("helm", "template", "try", CHART, "--values", tmp_path / "values.yaml")


@with_tools
def test_helm_refuses_more_workers_than_partitions():
    with pytest.raises(AssertionError, match="worker: 5 replicas share 4 partitions"):
        run("helm", "template", "try", CHART, "--set=components.worker.replicas=5")


@with_tools
def test_rules_dashboards_and_jobs_are_the_ones_of_this_folder(tmp_path: Path):
    made = list(filter(None, yaml.safe_load_all(rendered("production"))))
    for number, rules in enumerate(one["spec"] for one in made if one["kind"] == "PrometheusRule"):
        (tmp_path / f"{number}.yml").write_text(yaml.safe_dump(rules), "utf-8")
    promtool("check", "rules", "--lint=all", "--lint-fatal", *tmp_path.glob("*.yml"))
    assert "https://docs.example/streamer/runbook.md#" in (tmp_path / "1.yml").read_text("utf-8")
    boards = {file: text for one in made if one["kind"] == "ConfigMap" for file, text in one["data"].items()}
    assert {file: json.loads(text) for file, text in boards.items()} == {
        path.name: json.loads(path.read_text("utf-8")) for path in DASHBOARDS.glob("*.json")
    }
    scraped = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text("utf-8"))["scrape_configs"]
    assert all(f"replacement: {one['job_name']}" in rendered("production") for one in scraped[:2])
    run("helm", "package", CHART, "--destination", tmp_path)
    shutil.unpack_archive(next(tmp_path.glob("*.tgz")), tmp_path, filter="data")
    for path in RULE_FILES:
        assert (tmp_path / "streamer" / "files" / path.name).read_bytes() == path.read_bytes()
