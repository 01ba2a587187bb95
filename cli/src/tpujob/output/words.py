"""Numbers as people read them, also as a word of block characters, and directories as they write them."""

import math
import os
from collections.abc import Sequence
from pathlib import Path


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun, as in 1 file, 2,000 files; `plural` is for nouns whose plural is not an added s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def of_not_finite(count: int) -> str:
    """A warning about that many values of an extraction."""
    return f"{count:,} values are not finite; float16 ends at 65504, bfloat16 does not"


def magnitude(number: float) -> str:
    """Three or two digits of a large number, as in 8.0 B, 76.1 M, 45.2 thousand, 512."""
    for unit, scale in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("thousand", 1e3)):
        if number >= scale:
            return f"{number / scale:,.1f} {unit}"
    return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.2g}"


def time_range(low: float, high: float) -> str:
    """A range of seconds in a suitable unit: 4 to 7 seconds, 3.1 to 5.2 hours."""
    for unit, scale, limit in (("seconds", 1, 90), ("minutes", 60, 5400)):
        if low < limit:
            return f"{digit_range(low / scale, high / scale)} {unit}"
    return f"{low / 3600:,.1f} to {high / 3600:,.1f} hours"


def digit_range(low: float, high: float) -> str:
    """A range, as in 4 to 7; one number if both read the same."""
    first, last = digits(low), digits(high)
    return first if first == last else f"{first} to {last}"


def digits(number: float) -> str:
    """Three digits, as in 128, 10.7 and 0.0123."""
    if 0 < number < 0.0001:
        return "less than 0.0001"
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def duration(seconds: float) -> str:
    """A time, as in 2 h 05 min, 7 min or 40 s."""
    if seconds >= 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
    return f"{int(seconds // 60)} min" if seconds >= 120 else f"{int(seconds)} s"


def size(num_bytes: float) -> str:
    """A size, as in 512.0 MB, 1.47 TB."""
    for unit, scale, places in (("TB", 1e12, 2), ("GB", 1e9, 1), ("MB", 1e6, 1)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:,.{places}f} {unit}"
    return f"{num_bytes / 1e3:,.1f} kB"


def absolute(name: str) -> str:
    """The absolute path, or an address unchanged: the programs that read it may run in another folder."""
    return name if "://" in name else os.path.abspath(Path(name).expanduser())  # noqa: PTH100 - resolve follows links


BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 16


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """Finite values from first to last as block characters, each the mean of its part; empty for less than two."""
    values = [value for value in values if math.isfinite(value)]
    if len(values) < 2:
        return ""
    count = min(width, len(values))
    parts = [values[i * len(values) // count : (i + 1) * len(values) // count] for i in range(count)]
    means = [sum(part) / len(part) for part in parts]
    low, high = min(means), max(means)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((mean - low) * scale)] for mean in means)
