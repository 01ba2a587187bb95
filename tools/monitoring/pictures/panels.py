"""Panels of each kind, in a box of a given size."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tools.monitoring.grafana import Panel
from tools.monitoring.pictures import drawing, numbers
from tools.monitoring.pictures.series import Series, Window

HEAD, FOOT, LEFT, RIGHT = 28, 34, 62, 10
LEGEND_CHARACTERS = 7
"""Width of a character of the legend, in pixels."""
STATS = 4
"""The values that fit in a panel of kind stat."""
ROWS = 9
"""The rows that fit in a table."""
EMPTY = "no data"

type Point = tuple[float, float, float]
"""Unix time, and the lower and upper values of an area; a line is its upper edge."""


@dataclass(frozen=True)
class Frame:
    """Coordinates of a panel's curves: the pixels of its box, the times and values of its edges."""

    width: float
    height: float
    window: Window
    low: float
    high: float

    def x(self, time: float) -> float:
        """The coordinate of a Unix time."""
        part = (time - self.window.start) / (self.window.end - self.window.start)
        return LEFT + part * (self.width - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """The coordinate of a value."""
        part = (value - self.low) / (self.high - self.low)
        return self.height - FOOT - part * (self.height - HEAD - FOOT)


def draw(panel: Panel, series: Sequence[Series], window: Window, width: float, height: float) -> str:
    """A panel as SVG, its upper left corner at the origin."""
    parts = [drawing.box(0.5, 0.5, width - 1, height - 1, drawing.PAPER, stroke=drawing.LINE)]
    parts.append(drawing.words(10, 18, panel.title, size=13, fill=drawing.DARK))
    if not series:
        parts.append(drawing.words(width / 2, height / 2, EMPTY, size=13, anchor="middle"))
    elif panel.kind == "stat":
        parts += _stat(panel, series, width, height)
    elif panel.kind == "table":
        parts += _table(panel, series, window, width)
    elif panel.kind == "heatmap":
        parts += _heatmap(panel, series, window, width, height)
    else:
        parts += _timeseries(panel, series, window, width, height)
    return "".join(parts)


def _timeseries(panel: Panel, series: Sequence[Series], window: Window, width: float, height: float) -> list[str]:
    layers = _stacked(series) if panel.stacked else [[(time, 0.0, value) for time, value in s.points] for s in series]
    values = [top for layer in layers for _, _, top in layer] + ([0.0] if panel.stacked else [])
    ticks = numbers.ticks(min(values), max(values), panel.unit)
    frame = Frame(width, height, window, ticks[0], ticks[-1])
    parts = _axes(frame, [(value, numbers.text(value, panel.unit)) for value in ticks])
    for number, layer in enumerate(layers):
        for run in _runs(layer, longest_gap=1.5 * window.step):
            line = [(frame.x(time), frame.y(top)) for time, _, top in run]
            if panel.stacked:
                bottom = [(frame.x(time), frame.y(base)) for time, base, _ in reversed(run)]
                parts.append(drawing.area([*line, *bottom], drawing.colour(number)))
            parts.append(drawing.path(line, drawing.colour(number)))
            if len(run) == 1:
                parts.append(drawing.box(line[0][0] - 1, line[0][1] - 1, 2, 2, drawing.colour(number)))
    return parts + _legend([each.name for each in series], width, height)


def _runs(layer: Sequence[Point], *, longest_gap: float) -> list[list[Point]]:
    """The points in runs without gaps: no line is drawn where Prometheus has no value."""
    runs: list[list[Point]] = []
    for point in layer:
        if runs and point[0] - runs[-1][-1][0] <= longest_gap:
            runs[-1].append(point)
        else:
            runs.append([point])
    return runs


def _stacked(series: Sequence[Series]) -> list[list[Point]]:
    """For each series its points: time, the sum of the series below it, and that sum plus its own value."""
    below: dict[float, float] = {}
    layers = []
    for each in series:
        layer = []
        for time, value in each.points:
            base = below.get(time, 0.0)
            below[time] = base + value
            layer.append((time, base, base + value))
        layers.append(layer)
    return layers


def _axes(frame: Frame, labels: Sequence[tuple[float, str]]) -> list[str]:
    parts = []
    for value, label in labels:
        parts.append(drawing.rule(LEFT, frame.y(value), frame.width - LEFT - RIGHT))
        parts.append(drawing.words(LEFT - 6, frame.y(value) + 4, label, anchor="end"))
    return parts + _times(frame)


def _times(frame: Frame) -> list[str]:
    window = frame.window
    marks = [window.start + part * (window.end - window.start) for part in (0.0, 0.5, 1.0)]
    anchors = ("start", "middle", "end")
    return [
        drawing.words(
            frame.x(time), frame.height - FOOT + 14, f"{datetime.fromtimestamp(time, UTC):%H:%M:%S}", anchor=anchor
        )
        for time, anchor in zip(marks, anchors, strict=True)
    ]


def _legend(names: Sequence[str], width: float, height: float) -> list[str]:
    """The names that fit in one line, and the number of the others."""
    parts: list[str] = []
    left = 10.0
    for number, name in enumerate(names):
        needed = 16 + LEGEND_CHARACTERS * len(name)
        if left + needed > width - 40:
            return [*parts, drawing.words(left, height - 7, f"+ {len(names) - number}")]
        parts.append(drawing.box(left, height - 15, 9, 9, drawing.colour(number)))
        parts.append(drawing.words(left + 13, height - 7, name))
        left += needed
    return parts


def _stat(panel: Panel, series: Sequence[Series], width: float, height: float) -> list[str]:
    parts = []
    now = max(each.points[-1][0] for each in series)
    current = [each for each in series if each.points[-1][0] == now][:STATS]
    place = (height - HEAD) / len(current)
    for number, each in enumerate(current):
        middle = HEAD + (number + 0.5) * place
        parts.append(
            drawing.words(
                width / 2,
                middle + 4,
                numbers.text(each.last, panel.unit),
                size=28,
                fill=drawing.colour(0),
                anchor="middle",
            )
        )
        parts.append(drawing.words(width / 2, middle + 22, each.name, size=12, anchor="middle"))
    return parts


def _table(panel: Panel, series: Sequence[Series], window: Window, width: float) -> list[str]:
    """The labels and values of the series that have a value at the end of the window."""
    current = [each for each in series if each.points[-1][0] > window.end - 2 * window.step]
    columns = list(dict.fromkeys(key for each in current for key in each.labels if key != "__name__"))
    head = [*columns, *([] if panel.labels_only else ["value"])]
    place = (width - 20) / len(head)
    parts = [drawing.words(10 + number * place, 46, name, fill=drawing.DARK) for number, name in enumerate(head)]
    for row, each in enumerate(current[:ROWS]):
        cells = [*(each.labels.get(column, "") for column in columns), f"{each.last:g}"][: len(head)]
        parts.append(drawing.rule(10, 52 + 20 * row, width - 20))
        parts += [drawing.words(10 + number * place, 66 + 20 * row, cell) for number, cell in enumerate(cells)]
    return parts


def _heatmap(panel: Panel, series: Sequence[Series], window: Window, width: float, height: float) -> list[str]:
    """Buckets from the lowest: each series counts the values up to its label `le`, so neighbours are subtracted."""
    buckets = sorted(series, key=lambda each: float(each.labels["le"]))
    counts: list[dict[float, float]] = []
    below: dict[float, float] = {}
    for each in buckets:
        counts.append({time: max(value - below.get(time, 0.0), 0.0) for time, value in each.points})
        below = dict(each.points)
    used = [number for number, count in enumerate(counts) if any(value > 0 for value in count.values())] or [0]
    shown = range(max(used[0] - 1, 0), min(used[-1] + 2, len(counts)))
    most = max((value for number in shown for value in counts[number].values()), default=0.0) or 1.0
    frame = Frame(width, height, window, shown.start, shown.stop)
    cell_height = frame.y(0) - frame.y(1)
    labels = [(number + 0.35, f"≤ {numbers.text(float(buckets[number].labels['le']), panel.unit)}") for number in shown]
    parts = [drawing.words(LEFT - 6, frame.y(place), label, anchor="end") for place, label in labels]
    for number in shown:
        for time, value in counts[number].items():
            if value > 0:
                across = frame.x(time + window.step) - frame.x(time)
                fill = drawing.colour(0)
                parts.append(
                    drawing.box(
                        frame.x(time), frame.y(number + 1), across, cell_height, fill, opacity=max(value / most, 0.06)
                    )
                )
    return parts + _times(frame)
