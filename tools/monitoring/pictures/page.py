"""A whole dashboard as one SVG."""

from tools.monitoring.grafana import WIDTH as COLUMNS
from tools.monitoring.grafana import Dashboard
from tools.monitoring.pictures import drawing
from tools.monitoring.pictures.panels import draw
from tools.monitoring.pictures.series import Window, series_of

COLUMN, ROW, TOP, GAP = 50, 28, 44, 4
"""Pixels of one column and one row of Grafana's grid, of the title, and between panels."""


def render(dashboard: Dashboard, window: Window) -> str:
    """The SVG of a dashboard for a time range."""
    placed = dashboard.to_json()["panels"]
    height = TOP + ROW * max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in placed)
    panels = {panel.title: panel for panel in dashboard.panels}
    width = COLUMN * COLUMNS
    chosen = "  ".join(
        f"{name.removeprefix('$')}: {value}" for name, value in window.variables.items() if name != "$__rate_interval"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="{drawing.FONT}">',
        drawing.box(0, 0, width, height, "#f4f5f5"),
        drawing.words(10, 28, dashboard.title, size=18, fill=drawing.DARK),
    ]
    if dashboard.variables:
        parts.append(drawing.words(width - 10, 28, chosen, size=13, anchor="end"))
    for each in placed:
        place = each["gridPos"]
        left, top = place["x"] * COLUMN, TOP + place["y"] * ROW
        if each["type"] == "row":
            parts.append(drawing.words(10, top + 19, each["title"], size=14, fill=drawing.DARK))
            continue
        panel = panels[each["title"]]
        size = (place["w"] * COLUMN - GAP, place["h"] * ROW - GAP)
        body = draw(panel, series_of(panel, window), window, *size)
        parts.append(f'<g transform="translate({left + GAP / 2},{top + GAP / 2})">{body}</g>')
    return "\n".join([*parts, "</svg>\n"])
