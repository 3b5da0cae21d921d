"""What a dashboard is made of, in as much of Grafana's JSON as these dashboards need. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

# The palette of Okabe and Ito: told apart also by people who do not see red and green as two colours.
BLUE, SKY, GREEN, ORANGE, VERMILLION, PURPLE, GREY = (
    "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#8E8E8E",
)  # fmt: skip
FINE, DOUBTFUL, BAD = BLUE, ORANGE, VERMILLION

Kind = Literal["stat", "timeseries", "state-timeline", "table", "heatmap"]
Look = Literal["line", "band-upper", "band-lower", "limit", "faint", "bar"]

_WIDTH = 24
_PLAIN = ((None, FINE),)
_REF_IDS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression of a panel.

    Attributes
    ----------
    legend : with ``{{label}}`` in places; in a table the heading of its column.
    colour : fixed; None leaves it to the panel.
    look : how a line is drawn: the two edges of a band must be called ``upper`` and ``lower`` in their legends.
    unit : where it differs from the panel's.
    """

    expr: str
    legend: str = "{{gate}}"
    colour: str | None = None
    look: Look = "line"
    unit: str | None = None


def banded(bounds: Sequence[str], legend: str, colour: str) -> tuple[Query, Query, Query]:
    """A line within a band; `bounds` has its lower edge, the line and its upper edge."""
    lower, line, upper = bounds
    edges = Query(lower, "lower", SKY, "band-lower"), Query(upper, "upper", SKY, "band-upper")
    return *edges, Query(line, legend, colour)


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel; `steps` are (from which value, colour), the first from ``None``.

    Width and height are those of its row where None. What has no meaning by steps or names has no coloured background.
    """

    title: str
    unit: str
    description: str
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    width: int | None = None
    height: int | None = None
    steps: tuple[tuple[float | None, str], ...] = _PLAIN
    names: dict[float, tuple[str, str]] = field(default_factory=dict)
    """Words (and colours) that stand for values."""
    no_value: str = "no data"
    most: float | None = None
    decimals: int | None = None
    stacked: bool = False
    logarithmic: bool = False


stat = partial(Panel, kind="stat")
"""A panel of the present values in large letters."""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels side by side under a heading; they wrap where the width is used up."""

    title: str
    panels: tuple[Panel, ...]
    width: int = 12
    height: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One dashboard; `several_gates` lets people choose more than one gate, or all."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    links: tuple[tuple[str, str], ...]
    several_gates: bool
    start: str = "now-24h"

    def to_json(self) -> dict[str, Any]:
        """Return Grafana's JSON model."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["streamer"],
            "schemaVersion": 39,
            "version": 1,
            "editable": False,
            "graphTooltip": 1,
            "refresh": "30s",
            "time": {"from": self.start, "to": "now"},
            "timezone": "browser",
            "templating": {"list": self._variables()},
            "annotations": {"list": _annotations()},
            "links": [
                {
                    "title": title, "type": "link", "icon": "dashboard", "url": f"/d/{uid}",
                    "includeVars": True, "keepTime": True, "targetBlank": False, "asDropdown": False,
                    "tags": [], "tooltip": "",
                }
                for uid, title in self.links
            ],
            "panels": self._placed(),
        }  # fmt: skip

    def _variables(self) -> list[dict[str, Any]]:
        gate: dict[str, Any] = {
            "name": "gate",
            "label": "Gate",
            "description": "Gates that a worker shows a policy of.",
            "type": "query",
            "datasource": DATASOURCE,
            "query": {"query": "label_values(streamer_policy_version, gate)", "refId": "gate"},
            "refresh": 2,
            "sort": 1,
            "multi": self.several_gates,
            "includeAll": self.several_gates,
            "hide": 0,
        }
        if self.several_gates:
            gate |= {"allValue": ".*", "current": {"selected": True, "text": ["All"], "value": ["$__all"]}}
        return [
            {
                "name": "datasource",
                "label": "Prometheus",
                "description": "The data source that all panels ask.",
                "type": "datasource",
                "query": "prometheus",
                "refresh": 1,
                "multi": False,
                "includeAll": False,
                "hide": 0,
            },
            gate,
        ]

    def _placed(self) -> list[dict[str, Any]]:
        placed: list[dict[str, Any]] = []
        y = 0
        for row in self.rows:
            place = {"x": 0, "y": y, "w": _WIDTH, "h": 1}
            placed.append(
                {"id": len(placed) + 1, "type": "row", "title": row.title, "collapsed": False, "gridPos": place,
                 "panels": []}
            )  # fmt: skip
            y, x, line = y + 1, 0, 0
            for panel in row.panels:
                width, height = panel.width or row.width, panel.height or row.height
                if x + width > _WIDTH:
                    y, x, line = y + line, 0, 0
                place = {"x": x, "y": y, "w": width, "h": height}
                placed.append({"id": len(placed) + 1, "gridPos": place, **_panel(panel)})
                x, line = x + width, max(line, height)
            y += line
        return placed


def _annotations() -> list[dict[str, Any]]:
    """Marks in every panel: each new version of a policy, and each alarm that is raised."""
    version = 'max by (gate) (streamer_policy_version{gate=~"$gate"})'
    earlier = 'max by (gate) (streamer_policy_version{gate=~"$gate"} offset $__interval)'
    raised = 'gate_alarm:streamer_alarm_raised:leader{gate=~"$gate"}'
    return [
        _annotation(
            "New policies", BLUE,
            f'count_values by (gate) ("policy", {version}) '
            f'unless count_values by (gate) ("policy", {earlier}) '
            f"and on (gate) {earlier}",
            "Policy {{policy}} of {{gate}}",
        ),
        _annotation(
            "Alarms", BAD,
            f"{raised} == 1 unless ({raised} offset $__interval) == 1",
            "Alarm {{alarm}} of {{gate}}",
        ),
    ]  # fmt: skip


def _annotation(name: str, colour: str, expr: str, title: str) -> dict[str, Any]:
    """A query whose every point is a mark. Older versions of Grafana read `expr` and `titleFormat`, newer `target`."""
    return {
        "name": name, "datasource": DATASOURCE, "enable": True, "hide": False, "iconColor": colour,
        "target": {"refId": "Anno", "expr": expr, "legendFormat": title, "interval": "", "range": True,
                   "instant": False, "limit": 100, "matchAny": False, "tags": [], "type": "dashboard"},
        "expr": expr, "step": "", "titleFormat": title, "textFormat": "", "tagKeys": "", "useValueForTime": False,
    }  # fmt: skip


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "targets": [_target(panel, i, query) for i, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel)},
        "options": _options(panel),
        **({"transformations": _joined_by_gate(panel)} if panel.kind == "table" else {}),
    }


def _target(panel: Panel, place: int, query: Query) -> dict[str, Any]:
    at_once = panel.kind in ("stat", "table")
    kind = {"table": "table", "heatmap": "heatmap"}.get(panel.kind, "time_series")
    return {
        "refId": _REF_IDS[place],
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "legendFormat": query.legend,
        "format": kind,
        "instant": at_once,
        "range": not at_once,
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "noValue": panel.no_value,
        "color": {"mode": "palette-classic" if panel.kind == "timeseries" else "thresholds"},
        "thresholds": {
            "mode": "absolute",
            "steps": [{"value": value, "color": colour} for value, colour in panel.steps],
        },
        "mappings": [
            {
                "type": "value",
                "options": {
                    f"{value:g}": {"text": text, "color": colour, "index": i}
                    for i, (value, (text, colour)) in enumerate(panel.names.items())
                },
            }
        ]
        if panel.names
        else [],
        "custom": {},
    }
    from_zero = panel.kind in ("stat", "timeseries", "heatmap") and not panel.logarithmic
    bounds = {"min": 0.0 if from_zero else None, "max": panel.most, "decimals": panel.decimals}
    defaults |= {name: value for name, value in bounds.items() if value is not None}
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 25 if panel.stacked else 0,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "scaleDistribution": {"type": "log", "log": 10} if panel.logarithmic else {"type": "linear"},
            "thresholdsStyle": {"mode": "line" if len(panel.steps) > 1 else "off"},
        }
    elif panel.kind == "state-timeline":
        defaults["custom"] = {"lineWidth": 0, "fillOpacity": 80}
    return defaults


def _overrides(panel: Panel) -> list[dict[str, Any]]:
    overrides = []
    for place, query in enumerate(panel.queries):
        properties: list[tuple[str, Any]] = []
        if query.colour is not None:
            properties.append(("color", {"mode": "fixed", "fixedColor": query.colour}))
        if query.unit is not None:
            properties.append(("unit", query.unit))
        if panel.kind == "timeseries":
            properties += _LOOKS[query.look]
        if properties:
            overrides.append(
                {
                    # What a table shows was merged from its queries: there only the heading is left to go by.
                    "matcher": {"id": "byName", "options": query.legend}
                    if panel.kind == "table"
                    else {"id": "byFrameRefID", "options": _REF_IDS[place]},
                    "properties": [{"id": name, "value": value} for name, value in properties],
                }
            )
    return overrides


_LOOKS: dict[Look, list[tuple[str, Any]]] = {
    "line": [("custom.lineWidth", 2)],
    "band-upper": [("custom.lineWidth", 1), ("custom.fillBelowTo", "lower"), ("custom.fillOpacity", 20)],
    "band-lower": [("custom.lineWidth", 1)],
    "limit": [("custom.lineWidth", 2), ("custom.lineStyle", {"fill": "dash", "dash": [8, 6]})],
    "faint": [("custom.lineWidth", 1)],
    "bar": [("custom.drawStyle", "bars"), ("custom.fillOpacity", 60)],
}


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "orientation": "auto",
            "textMode": "auto" if len(panel.queries) == 1 else "value_and_name",
            "colorMode": "background" if panel.names or panel.steps != _PLAIN else "value",
            "graphMode": "none",
            "justifyMode": "auto",
            "wideLayout": True,
        }
    if panel.kind == "timeseries":
        return {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    if panel.kind == "state-timeline":
        return {
            "showValue": "auto",
            "rowHeight": 0.8,
            "mergeValues": True,
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "single", "sort": "none"},
        }
    if panel.kind == "heatmap":
        return {
            "calculate": False,
            "cellGap": 1,
            "color": {"mode": "scheme", "scheme": "Cividis", "steps": 64, "exponent": 0.5, "reverse": False,
                      "scale": "exponential", "fill": BLUE},
            "exemplars": {"color": PURPLE},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "rowsFrame": {"layout": "auto"},
            "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": False},
            "yAxis": {"axisPlacement": "left", "reverse": False, "unit": "percentunit"},
        }  # fmt: skip
    return {"showHeader": True, "cellHeight": "sm"}


def _joined_by_gate(panel: Panel) -> list[dict[str, Any]]:
    """One row for each combination of labels, one column for each query, under its legend."""
    headings = {f"Value #{_REF_IDS[i]}": query.legend for i, query in enumerate(panel.queries)}
    if len(panel.queries) == 1:
        headings["Value"] = panel.queries[0].legend
    return [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {"excludeByName": {"Time": True}, "indexByName": {}, "renameByName": headings},
        },
    ]
