"""Grafana dashboards as typed values, and the JSON that Grafana reads (schema 39, Grafana 10 and newer)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["timeseries", "stat", "heatmap", "table"]
WIDTH = 24
HEIGHT = 8
RATE = "[$__rate_interval]"
"""Grafana's range that fits the resolution of the graph, and is never less than four scrapes."""
WITHOUT_VALUES = {"id": "organize", "options": {"excludeByName": {"Time": True, "Value": True}}}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Query:
    """One PromQL expression and the name of its series."""

    expression: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel of a dashboard."""

    title: str
    queries: Sequence[Query]
    unit: str = "short"
    """Grafana's name of it: `s`, `bytes`, `percentunit`, `short`, …"""
    kind: Kind = "timeseries"
    text: str = ""
    """The description of the panel."""
    width: int = 8
    stacked: bool = False
    labels_only: bool = False
    """For a table: without the column of values, which have no meaning."""


@dataclass(frozen=True)
class Row:
    """Panels under one heading, from left to right."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Variable:
    """A selector at the top of the page, with values from a Prometheus query."""

    name: str
    query: str
    label: str


@dataclass(frozen=True)
class Dashboard:
    """A page of rows."""

    uid: str
    title: str
    text: str
    rows: Sequence[Row]
    variables: Sequence[Variable] = ()

    @property
    def panels(self) -> list[Panel]:
        """The panels of all rows."""
        return [panel for row in self.rows for panel in row.panels]

    def to_json(self) -> dict[str, Any]:
        """The dashboard in Grafana's JSON model."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.text,
            "tags": ["tpujob"],
            "schemaVersion": 39,
            "version": 1,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"},
            "timezone": "",
            "templating": {"list": [_datasource(), *(_variable(variable) for variable in self.variables)]},
            "panels": _placed(self.rows),
            "links": [
                {
                    "title": "tpujob dashboards",
                    "type": "dashboards",
                    "tags": ["tpujob"],
                    "asDropdown": True,
                    "keepTime": True,
                }
            ],
        }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": variable.query, "refId": variable.name},
        "definition": variable.query,
        "refresh": 2,
        "sort": 1,
    }


def _placed(rows: Sequence[Row]) -> list[dict[str, Any]]:
    placed: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        heading = {"type": "row", "title": row.title, "collapsed": False, "panels": []}
        placed.append({"id": len(placed) + 1, **heading, "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1}})
        top, left = top + 1, 0
        for panel in row.panels:
            if left + panel.width > WIDTH:
                top, left = top + HEIGHT, 0
            position = {"x": left, "y": top, "w": panel.width, "h": HEIGHT}
            placed.append({"id": len(placed) + 1, **_panel(panel), "gridPos": position})
            left += panel.width
        top += HEIGHT
    return placed


def _panel(panel: Panel) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": SOURCE,
            "expr": query.expression,
            "legendFormat": query.legend or "__auto",
            "format": {"heatmap": "heatmap", "table": "table"}.get(panel.kind, "time_series"),
            "instant": panel.kind in ("table", "stat"),
            "range": panel.kind not in ("table", "stat"),
        }
        for index, query in enumerate(panel.queries)
    ]
    custom: dict[str, Any] = {"fillOpacity": 30, "stacking": {"mode": "normal"}} if panel.stacked else {}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": custom}, "overrides": []},
        "options": _options(panel),
        **({"transformations": [WITHOUT_VALUES]} if panel.labels_only else {}),
    }


def _options(panel: Panel) -> dict[str, Any]:
    match panel.kind:
        case "timeseries":
            return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
        case "heatmap":
            return {"calculate": False, "yAxis": {"unit": panel.unit}, "cellGap": 1}
        case _:
            return {}
