"""Lines, areas, cells and text as SVG."""

import html
from collections.abc import Iterable

COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#b7791f", "#2c7a7b", "#9b2c2c", "#4a5568", "#3182ce")
GREY, DARK, LINE, PAPER = "#666", "#1a1a1a", "#e2e2e2", "#fff"
FONT = "system-ui, sans-serif"

type Points = Iterable[tuple[float, float]]


def colour(number: int) -> str:
    """The colour of the series with this number."""
    return COLOURS[number % len(COLOURS)]


def words(x: float, y: float, content: str, *, size: int = 11, fill: str = GREY, anchor: str = "start") -> str:
    """Text whose baseline starts, ends or is centered at a point."""
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"'
    return f"<text {place}>{html.escape(content)}</text>"


def path(points: Points, stroke: str) -> str:
    """A line through points."""
    return f'<polyline fill="none" stroke="{stroke}" stroke-width="1.4" points="{_listed(points)}"/>'


def area(points: Points, fill: str) -> str:
    """A filled polygon."""
    return f'<polygon fill="{fill}" fill-opacity="0.35" points="{_listed(points)}"/>'


def box(
    x: float, y: float, width: float, height: float, fill: str, *, opacity: float = 1.0, stroke: str = "none"
) -> str:
    """A rectangle."""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {place} fill="{fill}" fill-opacity="{opacity:.2f}" stroke="{stroke}"/>'


def rule(x: float, y: float, width: float) -> str:
    """A thin horizontal line."""
    return f'<path d="M{x:.1f} {y:.1f}h{width:.1f}" stroke="{LINE}"/>'


def _listed(points: Points) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
