"""Line charts as SVG, for pages without scripts that load nothing."""

import html
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 64, 36, 10, 40
COLORS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#718096")
MOST_POINTS = 1000
"""Of a line: more than its width in pixels."""
TICKS = 8
"""The most intervals between ticks on an axis."""


@dataclass(frozen=True)
class Line:
    """One line of a chart."""

    name: str
    points: Sequence[tuple[float, float]]
    """In the order of the first number; points that are not finite are left out."""
    color: int = 0
    """Index in `COLORS`, modulo their number."""


@dataclass(frozen=True)
class Mark:
    """A vertical line with a name for what happened at its place."""

    at: float
    name: str
    color: int = 0


def chart(lines: Sequence[Line], *, across: str, label: str, marks: Sequence[Mark] = ()) -> str:
    """An `<svg>`; empty if no line has two points.

    Args:
        lines: Drawn over one another.
        across: What the horizontal axis counts.
        label: What the chart shows, for screen readers.
        marks: Those between the first and the last point are drawn.
    """
    drawn = [Line(line.name, _thinned(_finite(line.points)), line.color) for line in lines]
    drawn = [line for line in drawn if len(line.points) > 1]
    if not drawn:
        return ""
    xs = [x for line in drawn for x, _ in line.points]
    ys = [y for line in drawn for _, y in line.points]
    x_of = _scale(min(xs), max(xs), LEFT, WIDTH - RIGHT)
    y_of = _scale(min(ys), max(ys), HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(label)}">',
        *_axes(_ticks(min(xs), max(xs)), _ticks(min(ys), max(ys)), x_of, y_of, across),
        *(_mark(mark, x_of(mark.at)) for mark in marks if min(xs) <= mark.at <= max(xs)),
        *(_polyline(line, x_of, y_of) for line in drawn),
        "</svg>",
    ]
    return "".join(parts)


def color_of(number: int) -> str:
    """The color of the line of this number."""
    return COLORS[number % len(COLORS)]


def _finite(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The lowest and highest points of each interval, so that no peak is lost."""
    if len(points) <= MOST_POINTS:
        return points
    size = math.ceil(len(points) / (MOST_POINTS // 2))
    kept = []
    for begin in range(0, len(points), size):
        piece = points[begin : begin + size]
        ends = {min(piece, key=lambda point: point[1]), max(piece, key=lambda point: point[1])}
        kept += sorted(ends)
    return kept


def _scale(low: float, high: float, begin: float, end: float) -> Callable[[float], float]:
    span = high - low
    return lambda value: (begin + end) / 2 if span == 0 else begin + (value - low) / span * (end - begin)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers within a range."""
    if high == low:
        return [low]
    rough = (high - low) / TICKS
    magnitude = 10 ** math.floor(math.log10(rough))
    step = next(factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude >= rough)
    # The quotient of an end that is round itself may be slightly off.
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _axes(
    xs: Sequence[float],
    ys: Sequence[float],
    x_of: Callable[[float], float],
    y_of: Callable[[float], float],
    across: str,
) -> Iterator[str]:
    bottom = HEIGHT - BOTTOM
    yield '<g font-size="12" fill="#666" stroke="none">'
    for y in ys:
        yield f'<path d="M{LEFT} {y_of(y):.1f}H{WIDTH - RIGHT}" stroke="#eee"/>'
        yield f'<text x="{LEFT - 6}" y="{y_of(y) + 4:.1f}" text-anchor="end">{_number(y)}</text>'
    for x in xs:
        yield f'<text x="{x_of(x):.1f}" y="{bottom + 18}" text-anchor="middle">{_number(x)}</text>'
    yield f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 3}" text-anchor="end">{html.escape(across)}</text></g>'


def _mark(mark: Mark, x: float) -> str:
    return (
        f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="{color_of(mark.color)}" stroke-dasharray="2 3">'
        f"<title>{html.escape(mark.name)}</title></path>"
    )


def _polyline(line: Line, x_of: Callable[[float], float], y_of: Callable[[float], float]) -> str:
    points = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in line.points)
    return (
        f'<polyline fill="none" stroke="{color_of(line.color)}" stroke-width="1.5" points="{points}">'
        f"<title>{html.escape(line.name)}</title></polyline>"
    )


def _number(value: float) -> str:
    """As in 0, 0.25, 1,500, 2.5M, 1e-05."""
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if abs(value) >= scale:
            return f"{value / scale:g}{unit}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
