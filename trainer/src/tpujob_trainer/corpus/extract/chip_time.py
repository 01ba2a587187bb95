"""The chip-hours of an extraction, from its workers' measurements. Pure.

A worker's time runs from the claim of its first unit to the end of its last one, without start-up and compilation.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tpujob_trainer.corpus.workers.results import UnitResult
from tpujob_trainer.model.chips import BY_KIND

KEYS = (
    "chip_kind",
    "chip_hours",
    "chip_hours_left",
    "rows_per_chip_second",
    "tokens_per_chip_second",
    "peak_fraction",
)
"""Keys of the result of `chip_time`."""


@dataclass(frozen=True)
class Finished:
    """A unit's result, and when it was written to storage."""

    result: UnitResult
    time: float


def chip_time(units: int, finished: Sequence[Finished]) -> dict[str, Any]:
    """Chip-hours so far and left, rows and tokens per chip-second, and the part of the chip's peak; None: unknown.

    Args:
        units: length of the whole list.
        finished: all units that are done; those of earlier releases do not have the number of chips.
    """
    counted = [each for each in finished if each.result.chips]
    seconds = chip_seconds(counted)
    if not seconds:
        return dict.fromkeys(KEYS)
    kinds = sorted({each.result.chip_kind or "" for each in counted})
    of_a_unit = seconds / 3600 / len(counted)
    return {
        "chip_kind": ", ".join(kinds),
        "chip_hours": round(of_a_unit * len(finished), 6),
        "chip_hours_left": round(of_a_unit * (units - len(finished)), 6),
        "rows_per_chip_second": round(sum(each.result.rows for each in counted) / seconds, 3),
        "tokens_per_chip_second": round(sum(each.result.tokens for each in counted) / seconds, 1),
        "peak_fraction": _peak_fraction(counted, kinds, seconds),
    }


def _peak_fraction(counted: Sequence[Finished], kinds: Sequence[str], seconds: float) -> float | None:
    """The operations for the tokens, as a part of the chips' bfloat16 rate; None: either is unknown."""
    chip = BY_KIND.get(kinds[0]) if len(kinds) == 1 else None
    flops = [each.result.flops for each in counted if each.result.flops is not None]
    if chip is None or len(flops) < len(counted):
        return None
    return round(sum(flops) / seconds / (chip.flops * chip.devices_per_chip), 4)


def chip_seconds(finished: Sequence[Finished]) -> float:
    """Chip-seconds of all workers, over all their restarts."""
    lives: dict[str, list[Finished]] = collections.defaultdict(list)
    for each in finished:
        lives[each.result.worker].append(each)
    return sum(
        (max(each.time for each in life) - min(each.time - each.result.seconds for each in life))
        * (life[0].result.chips or 0)
        for life in lives.values()
    )
