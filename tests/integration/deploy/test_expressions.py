"""Rules and panels name metrics and labels that exist; a name that is misspelt would be a panel that stays empty."""

import re
from functools import cache

import pytest

from streamer.telemetry.catalogue import CATALOGUE
from tests import promql

OF_PROMETHEUS = {"up": set(), "prometheus_rule_evaluation_failures_total": {"rule_group"}}
MADE_HERE = {"policy"}
"""Labels that `count_values` makes."""


@cache
def known() -> dict[str, set[str]]:
    """Every series that may be asked for, with its labels."""
    series: dict[str, set[str]] = dict(OF_PROMETHEUS)
    for metric in CATALOGUE:
        labels = set(metric.labels)
        series[metric.name] = labels
        if metric.type == "histogram":
            series |= {f"{metric.name}_{part}": labels for part in ("sum", "count")}
            series[f"{metric.name}_bucket"] = labels | {"le"}
    for rule in promql.rules():
        if rule.kind == "recording":
            name = rule.place.removeprefix("rules / ")
            series[name] = set(name.split(":")[0].split("_"))
    return {name: labels | promql.PLACE_ITSELF for name, labels in series.items()}


EXPRESSIONS = promql.expressions()


def test_no_two_expressions_have_one_place() -> None:
    places = [each.place for each in EXPRESSIONS]
    assert len(set(places)) == len(places)
    assert len(places) > 100


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=lambda each: each.place)
def test_metrics_and_labels_are_in_the_catalogue(expression: promql.Expression) -> None:
    series = known()
    used = promql.metrics_used(expression.text)
    assert used <= series.keys(), "no such metric"
    labels = set().union(*(series[name] for name in used)) | MADE_HERE
    assert promql.labels_used(expression.text) <= labels, "no such label"
    for name, wanted in promql.matched(expression.text):
        assert wanted <= series[name], f"{name} has no such label"
    assert promql.legend_labels(expression.legend) <= labels, "a legend names no label"
    assert "$" not in expression.text, "a variable that nothing stands for"


@pytest.mark.parametrize(
    "rule", [each for each in EXPRESSIONS if each.kind == "recording"], ids=lambda each: each.place
)
def test_recorded_names_tell_level_metric_and_operation(rule: promql.Expression) -> None:
    level, metric, operation = rule.place.removeprefix("rules / ").split(":")
    (labels,) = set(re.findall(r"^\s*\w+(?:\([\d.,\s]*)?\s*by \(([^)]*)\)", rule.text)) or set(
        re.findall(r"by \(([^)]*)\)", rule.text)[:1]
    )
    assert level == "_".join(part.strip() for part in labels.split(",") if part.strip() != "le")
    assert metric.startswith("streamer_")
    assert re.fullmatch(
        r"(rate\d+[mh]|ratio_rate\d+[mh]|p99_rate5m|deriv\d+[mh]|ratio|max|leader)", operation
    )


def test_the_reading_of_expressions_is_right() -> None:
    text = (
        'sum by (gate) (rate(streamer_a_total{gate=~"x|y", reason!="max(z)"}[5m] offset 1d)) '
        "/ on (gate) group_left (kind) (gate:streamer_b:rate5m > bool 2) unless vector(1)"
    )
    assert promql.metrics_used(text) == {"streamer_a_total", "gate:streamer_b:rate5m"}
    assert promql.labels_used(text) == {"gate", "reason", "kind"}
    assert promql.matched(text) == [("streamer_a_total", {"gate", "reason"})]
    assert promql.metrics_used("absent(streamer_c == 1) or 1e9 * time()") == {"streamer_c"}
