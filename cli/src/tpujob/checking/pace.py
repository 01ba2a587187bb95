"""How fast chips compute, as a range."""

from __future__ import annotations

from tpujob_resource.topology.tables import GENERATIONS

UTILISATION = (0.3, 0.5)
"""The range of peak utilisation in which efficient training usually runs."""


def hours(generation: str, chips: int, flops: float) -> list[float]:
    """The minimum and maximum hours for so many floating-point operations."""
    return [flops / (GENERATIONS[generation].peak_flops * chips * part) / 3600 for part in reversed(UTILISATION)]
