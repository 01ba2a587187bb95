"""Numbers as one word of block characters. Pure."""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 16


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """Values from first to last as block characters, each the mean of its part; empty for less than two values."""
    if len(values) < 2:
        return ""
    count = min(width, len(values))
    parts = [values[i * len(values) // count : (i + 1) * len(values) // count] for i in range(count)]
    means = [sum(part) / len(part) for part in parts]
    low, high = min(means), max(means)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((mean - low) * scale)] for mean in means)
