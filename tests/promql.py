"""Every PromQL expression of deploy/: panels, annotations and variables of dashboards, recording and alerting rules.

`expressions` lists them with Grafana's variables filled in, ready to be asked of a Prometheus. `metrics_used` and
`labels_used` tell what an expression stands on, read from its text.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
DASHBOARDS = ROOT / "deploy" / "grafana" / "dashboards"
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULE_FILES = (PROMETHEUS / "recording.rules.yml", PROMETHEUS / "alerting.rules.yml")

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_MATCHERS = re.compile(r"\{([^}]*)\}")
_LABEL_LIST = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_DURATION = re.compile(r"\[[^\]]*\]|\boffset\s+-?\w+")
_KEYWORDS = {
    "and",
    "or",
    "unless",
    "bool",
    "offset",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
}
_KEYWORDS |= {"inf", "nan", "Inf", "NaN"}

PLACE_ITSELF = {"job", "instance"}
"""Labels that Prometheus puts to every series."""


@dataclass(frozen=True, slots=True)
class Expression:
    """One expression, and where it stands.

    Attributes
    ----------
    place : ``dashboard / panel / legend``, ``rules / name``; unique.
    kind : ``panel``, ``annotation``, ``recording`` or ``alert``.
    text : PromQL without Grafana's variables.
    legend : template of the legend; empty for rules.
    """

    place: str
    kind: str
    text: str
    legend: str = ""


def expressions(gate: str = ".+", *, interval: str = "1m") -> list[Expression]:
    """List every expression, recording rules first.

    Parameters
    ----------
    gate : what stands for the chosen gates: a regular expression.
    interval : what stands for ``$__rate_interval`` and ``$__interval``.
    """
    return [*rules(), *panels(gate, interval=interval)]


def rules() -> list[Expression]:
    """List the expressions of all rules as they stand."""
    return [
        Expression(f"rules / {rule.get('record') or rule['alert']}", kind, rule["expr"].strip())
        for path in RULE_FILES
        for rule in rules_of(path)
        for kind in ("recording" if "record" in rule else "alert",)
    ]


def rules_of(path: Path) -> list[dict[str, Any]]:
    """List the rules of a file, as they are written."""
    return [
        rule for group in yaml.load(path.read_bytes(), yaml.CSafeLoader)["groups"] for rule in group["rules"]
    ]


def dashboards() -> dict[str, dict[str, Any]]:
    """Return all dashboards by the name of their file."""
    return {path.name: json.loads(path.read_text("utf-8")) for path in sorted(DASHBOARDS.glob("*.json"))}


def panels(gate: str = ".+", *, interval: str = "1m") -> list[Expression]:
    """List the expressions of all panels and annotations, with variables filled in."""
    return [
        Expression(place, kind, filled_in(text, gate, interval), legend)
        for board in dashboards().values()
        for place, kind, text, legend in _of_dashboard(board)
    ]


def _of_dashboard(board: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            place = f"{board['uid']} / {panel['title']} / {target['refId']} {target['legendFormat']}"
            yield place, "panel", target["expr"], target["legendFormat"]
    for annotation in board["annotations"]["list"]:
        place = f"{board['uid']} / annotation {annotation['name']}"
        yield place, "annotation", annotation["expr"], annotation["titleFormat"]


def filled_in(text: str, gate: str, interval: str) -> str:
    """Put values in the place of Grafana's variables."""
    text = text.replace("$__rate_interval", interval).replace("$__interval", interval)
    return text.replace("$gate", gate.replace("\\", "\\\\"))


def metrics_used(text: str) -> set[str]:
    """Names of the metrics and recorded series that an expression reads."""
    bare = _DURATION.sub("", _STRING.sub('""', text))
    bare = _LABEL_LIST.sub(" ", _MATCHERS.sub(" ", bare))
    return {
        found[0]
        for found in _NAME.finditer(bare)
        if found[0] not in _KEYWORDS
        and not bare[found.end() :].lstrip().startswith("(")
        and not (found.start() and bare[found.start() - 1].isdigit())
    } - _aggregations(bare)


def _aggregations(bare: str) -> set[str]:
    """Words before ``by (...)``, which was taken out, and its parenthesis."""
    return {found[1] for found in re.finditer(r"\b(sum|max|min|count|avg|count_values)\b", bare)}


def labels_used(text: str) -> set[str]:
    """Names of the labels that an expression selects, groups or joins by."""
    bare = _STRING.sub('""', text)
    lists = [found[1] for found in _LABEL_LIST.finditer(bare)]
    matchers = [
        word for found in _MATCHERS.finditer(bare) for word in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", found[1])
    ]
    return {label.strip() for each in lists for label in each.split(",") if label.strip()} | set(matchers)


def matched(text: str) -> list[tuple[str, set[str]]]:
    """Each metric with braces in an expression, and the labels that stand in them."""
    bare = _STRING.sub('""', text)
    return [
        (found[1], set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", found[2])))
        for found in re.finditer(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}", bare)
    ]


def legend_labels(legend: str) -> set[str]:
    """Labels that a legend has in places of its text."""
    return set(re.findall(r"{{\s*(\w+)\s*}}", legend))


def empty_while_all_is_well() -> dict[str, str]:
    """Places of expressions that have no data while nothing is wrong and nothing changes, each with why."""
    quiet = {
        each.place: "an alert, which has data only while it is pending or fires"
        for each in rules()
        if each.kind == "alert" and each.place != "rules / StreamerDeadMansSwitch"
    }
    marks = {
        each.place: "a mark, which has data only at the moment of a change"
        for each in panels()
        if each.kind == "annotation"
    }
    since = {
        each.place: "the time of an alarm, while one stands"
        for each in panels()
        if "streamer_alarm_raised_timestamp_seconds" in each.text
    }
    return quiet | marks | since
