"""Readable values in Grafana's units."""

import math

SHORT = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K"))
BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
SECONDS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs"))
SUFFIXES = {"ops": "/s", "reqps": "/s"}
NICE = (1, 2, 5, 10)
"""Steps of an axis, times a power of ten."""
TIMES = (10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400)
"""Steps of an axis of seconds."""


def text(value: float, unit: str) -> str:
    """A value with its unit, rounded to three digits or to a whole number."""
    match unit:
        case "percentunit":
            return f"{_digits(100 * value)} %"
        case "s":
            return _scaled(value, SECONDS, " ") if value else "0 s"
        case "bytes" | "Bps":
            return _scaled(value, BYTES, " ", "B") + ("/s" if unit == "Bps" else "")
        case _:
            return _scaled(value, SHORT, " ") + SUFFIXES.get(unit, "")


def ticks(low: float, high: float, unit: str = "short", count: int = 4) -> list[float]:
    """About `count` round values that span a range; the outer ones are at or beyond its ends.

    A range of one value is extended to zero.
    """
    if high <= low:
        low, high = (min(low, 0.0), max(high, 0.0)) if low else (0.0, 1.0)
    rough = (high - low) / count
    step = _step(rough, unit)
    first = math.floor(low / step)
    last = math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def _step(least: float, unit: str) -> float:
    """The smallest step that is round in the unit, and at least `least`."""
    if unit == "s" and TIMES[0] <= least <= TIMES[-1]:
        return next(step for step in TIMES if step >= least)
    scale = BYTES if unit in ("bytes", "Bps") else ()
    base = next((size for size, _ in scale if size <= least), 1)
    power = base * 10 ** math.floor(math.log10(least / base))
    return next(nice * power for nice in NICE if nice * power >= least * 0.999)


def _scaled(value: float, scale: tuple[tuple[float, str], ...], space: str, base: str = "") -> str:
    for size, name in scale:
        if abs(value) >= size:
            return f"{_digits(value / size)}{space}{name}"
    return f"{_digits(value)}{space}{base}".rstrip()


def _digits(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"
