"""How fast chips compute, as a range."""

from __future__ import annotations

from tpujob_resource.topology.tables import GENERATIONS

UTILISATION = (0.3, 0.5)
"""Between which part of the peak well-made training usually runs."""


def hours(generation: str, chips: int, flops: float) -> list[float]:
    """The fewest and the most hours for so many operations."""
    return [flops / (GENERATIONS[generation].peak_flops * chips * part) / 3600 for part in reversed(UTILISATION)]
