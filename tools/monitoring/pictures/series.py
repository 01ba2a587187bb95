"""The results of a panel's Prometheus queries, with the names of its legend."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tools.localcluster.prometheus import query_range
from tools.monitoring.grafana import Panel

STEPS = 150
"""Points of a line."""


@dataclass(frozen=True)
class Window:
    """A Prometheus, a time range, and the values of variables."""

    url: str
    """Of Prometheus."""
    start: float
    """Unix time, as `end`."""
    end: float
    variables: Mapping[str, str]
    """Values of `$namespace` and other variables."""

    @property
    def step(self) -> float:
        """Seconds between two points."""
        return (self.end - self.start) / STEPS

    def filled(self, expression: str) -> str:
        """The expression with its variables replaced."""
        for name, value in self.variables.items():
            expression = expression.replace(name, value)
        return expression


@dataclass(frozen=True)
class Series:
    """A line: its name, its labels, and its points (Unix time, value) with finite values."""

    name: str
    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def last(self) -> float:
        """Its newest value."""
        return self.points[-1][1]


def series_of(panel: Panel, window: Window) -> list[Series]:
    """All series of a panel in the order of their queries; empty if Prometheus has none."""
    return list(_series_of(panel, window))


def _series_of(panel: Panel, window: Window) -> Iterator[Series]:
    for query in panel.queries:
        text = window.filled(query.expression)
        answer = query_range(window.url, text, start=window.start, end=window.end, step=window.step)
        for each in answer:
            numbers = ((float(time), float(value)) for time, value in each["values"])
            points = tuple(point for point in numbers if math.isfinite(point[1]))
            if points:
                yield Series(_name(query.legend, each["metric"]), each["metric"], points)


def _name(legend: str, labels: Mapping[str, str]) -> str:
    if not legend:
        return ", ".join(value for key, value in labels.items() if key != "__name__")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), legend)
