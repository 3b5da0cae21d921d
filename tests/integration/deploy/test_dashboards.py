"""The dashboards are fresh, and of a shape that Grafana can read; it itself is not here to be asked."""

import re
from itertools import combinations
from typing import Any

import pytest
import yaml

from deploy.grafana import generate
from deploy.grafana.panels import BAD, BLUE, DOUBTFUL, FINE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION
from tests import promql

BOARDS = promql.dashboards()
PALETTE = {BLUE, SKY, GREEN, ORANGE, VERMILLION, PURPLE, GREY, FINE, DOUBTFUL, BAD}
SHARED = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {
    "none", "short", "s", "percentunit", "reqps", "cps", "dateTimeFromNow", "dtdurations",
}  # fmt: skip
each_board = pytest.mark.parametrize("board", BOARDS.values(), ids=list(BOARDS))


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def test_the_files_are_fresh() -> None:
    assert {
        path.name: path.read_text("utf-8") for path in promql.DASHBOARDS.glob("*.json")
    } == generate.rendered()


def test_the_three_dashboards_keep_their_addresses() -> None:
    assert {board["uid"] for board in BOARDS.values()} == {
        "streamer-risk", "streamer-pipeline", "streamer-calibration",
    }  # fmt: skip
    for name, board in BOARDS.items():
        assert name == f"{board['uid']}.json"
        assert len(board["uid"]) <= 40
        for link in board["links"]:
            assert link["url"].removeprefix("/d/") in {other["uid"] for other in BOARDS.values()} - {
                board["uid"]
            }


@each_board
def test_panels_have_ids_of_their_own_and_do_not_overlap(board: dict[str, Any]) -> None:
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    titles = [panel["title"] for panel in panels(board)]
    assert len(set(titles)) == len(titles)
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["y"] >= 0
        assert place["w"] >= 1
        assert place["h"] >= 1
        assert place["x"] + place["w"] <= 24
    for one, other in combinations((panel["gridPos"] for panel in board["panels"]), 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)


@each_board
def test_every_panel_explains_itself_and_asks_the_chosen_data_source(board: dict[str, Any]) -> None:
    for panel in panels(board):
        assert len(panel["description"]) > 25, panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert panel["datasource"] == SHARED
        ids = [target["refId"] for target in panel["targets"]]
        assert ids
        assert len(set(ids)) == len(ids)
        for target in panel["targets"]:
            assert target["datasource"] == SHARED
            assert target["expr"].strip()
            assert target["instant"] is not target["range"]


@each_board
def test_rates_are_reckoned_from_the_scrape_interval(board: dict[str, Any]) -> None:
    for panel in panels(board):
        for target in panel["targets"]:
            for window in re.findall(r"\brate\([^[]*\[([^\]]*)\]", target["expr"]):
                assert window == "$__rate_interval", panel["title"]


@each_board
def test_colours_are_told_apart_by_everybody_and_thresholds_rise(board: dict[str, Any]) -> None:
    for panel in panels(board):
        defaults = panel["fieldConfig"]["defaults"]
        steps = defaults["thresholds"]["steps"]
        assert steps[0]["value"] is None
        assert [step["value"] for step in steps[1:]] == sorted(step["value"] for step in steps[1:])
        colours = {step["color"] for step in steps}
        colours |= {word["color"] for mapping in defaults["mappings"] for word in mapping["options"].values()}
        for override in panel["fieldConfig"]["overrides"]:
            by = {"byName": "legendFormat", "byFrameRefID": "refId"}[override["matcher"]["id"]]
            assert [t[by] for t in panel["targets"]].count(override["matcher"]["options"]) == 1
            for each in override["properties"]:
                if each["id"] == "color":
                    colours.add(each["value"]["fixedColor"])
                if each["id"] == "custom.fillBelowTo":
                    assert each["value"] in {target["legendFormat"] for target in panel["targets"]}
        assert colours <= PALETTE, panel["title"]


@each_board
def test_variables_and_marks(board: dict[str, Any]) -> None:
    source, gate = board["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == ("datasource", "datasource", "prometheus")
    assert (gate["name"], gate["datasource"]) == ("gate", SHARED)
    assert gate["query"]["query"] == "label_values(streamer_policy_version, gate)"
    assert {mark["name"] for mark in board["annotations"]["list"]} == {"New policies", "Alarms"}
    for mark in board["annotations"]["list"]:
        assert mark["enable"]
        assert mark["datasource"] == SHARED
        assert "offset $__interval" in mark["expr"]
        assert mark["target"]["expr"] == mark["expr"]


def test_provisioning_leads_to_what_is_there() -> None:
    folder = promql.ROOT / "deploy" / "grafana" / "provisioning"
    (source,) = yaml.safe_load((folder / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["type"] == "prometheus"
    assert source["uid"] == "streamer-prometheus"
    scraped = yaml.safe_load((promql.PROMETHEUS / "prometheus.yml").read_text())["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == scraped
    (provider,) = yaml.safe_load((folder / "dashboards" / "streamer.yml").read_text())["providers"]
    assert provider["type"] == "file"
    assert provider["options"]["path"] == "/etc/grafana/dashboards"


def test_the_runbook_names_panels_that_there_are() -> None:
    page = (promql.ROOT / "docs" / "runbook.md").read_text("utf-8")
    named = 0
    for look in re.findall(r"\*\*Look\.\*\*(.*?)\n\n", page, re.DOTALL):
        parts = re.split(r"\b(Risk|Pipeline|Calibration):", look)
        for board, text in zip(parts[1::2], parts[2::2], strict=True):
            titles = {panel["title"] for panel in panels(BOARDS[f"streamer-{board.lower()}.json"])}
            for panel in re.findall(r"\*([A-Z][^*]+)\*", text.replace("\n", " ")):
                assert panel in titles, f"{board} has no panel {panel!r}"
                named += 1
    assert named > 50
