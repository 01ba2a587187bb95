"""Sums over the values of a column, which can be added up over batches and units. Pure."""

from __future__ import annotations

STATISTICS = ("count", "sum", "sum_of_squares", "minimum", "maximum", "not_finite")


def add_statistics(before: list[float] | None, more: list[float]) -> list[float]:
    """Two lists of `STATISTICS` together."""
    assert len(more) == len(STATISTICS)
    if before is None:
        return more
    least, most = min(before[3], more[3]), max(before[4], more[4])
    sums = [a + b for a, b in zip(before, more, strict=True)]
    return [*sums[:3], least, most, sums[5]]
