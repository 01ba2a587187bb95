"""Which lane reads which unit, and fills which rows of the global batch: arithmetic only.

The plan depends on the data set, the batch size and the seed, never on the number of processes. So the k-th global
batch is the same however the rows are spread over hosts.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.data.manifest import Manifest
from tpujob_trainer.data.permutation import Permutation
from tpujob_trainer.errors import ConfigurationError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LanePlan:
    """The division of `num_units` units over `lanes` lanes that fill a global batch of `batch_size` rows."""

    num_units: int
    batch_size: int
    lanes: int
    seed: int

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigurationError(f"spec.trainer.batchSize: {self.batch_size} is less than 1")
        if self.lanes < 1 or self.batch_size % self.lanes:
            raise ConfigurationError(
                f"spec.trainer.data.lanes: {self.lanes} does not divide batchSize {self.batch_size}; "
                f"these do: {_listed(_divisors(self.batch_size))}"
            )
        if self.lanes > self.num_units:
            fitting = [number for number in _divisors(self.batch_size) if number <= self.num_units]
            allowed = f"these work: {_listed(fitting)}" if fitting else "the data has no rows"
            raise ConfigurationError(
                f"spec.trainer.data.lanes: {self.lanes} is more than the {self.num_units} units of the data; {allowed}"
            )

    @property
    def rows_per_lane(self) -> int:
        """Rows of each global batch that one lane fills."""
        return self.batch_size // self.lanes

    def rows_of(self, lane: int) -> range:
        """The rows of the global batch that a lane fills."""
        return range(lane * self.rows_per_lane, (lane + 1) * self.rows_per_lane)

    def lanes_of(self, rows: Iterable[int]) -> list[int]:
        """The lanes that fill these rows, ascending."""
        return sorted({int(row) // self.rows_per_lane for row in rows})

    def units_in(self, lane: int) -> int:
        """How many units a lane reads in one epoch; at least one."""
        return (self.num_units - lane + self.lanes - 1) // self.lanes

    def unit(self, lane: int, epoch: int, index: int) -> int:
        """The unit that is the `index`-th of a lane in an epoch: π(seed, epoch)[lane::lanes][index]."""
        return _order(self.num_units, self.seed, epoch)[lane + index * self.lanes]


def plan_lanes(
    manifest: Manifest, config: DataConfig, *, batch_size: int, seed: int, begun_with: int | None = None
) -> LanePlan:
    """The plan for a run: as many lanes as the configuration says, else as many as units, memory and divisors allow.

    Args:
        manifest: the data.
        config: may say how many lanes, or how much memory they may take.
        batch_size: rows of the global batch.
        seed: of the order.
        begun_with: lanes of the run that is continued (`lanes` of `describe_data`); None for a new run.

    Raises:
        ConfigurationError: the lanes asked for do not divide the batch, or are more than the units.
    """
    num_units = manifest.num_units
    fixed = config.lanes if config.lanes is not None else begun_with
    if fixed is not None:
        return LanePlan(num_units, batch_size, fixed, seed)
    if batch_size < 1:
        raise ConfigurationError(f"spec.trainer.batchSize: {batch_size} is less than 1")
    affordable = max(1, config.buffer_bytes // (2 * max(1, manifest.largest_unit_bytes)))
    limit = min(batch_size, num_units, affordable)
    lanes = max((number for number in _divisors(batch_size) if number <= limit), default=1)
    if num_units < batch_size:
        logger.warning(
            "The data has only %d units for batchSize %d: %d lanes fill %d rows each",
            num_units, batch_size, lanes, batch_size // lanes,
        )  # fmt: skip
    if 2 * lanes <= limit:
        better = batch_size // limit * limit
        logger.warning(
            "batchSize %d has no divisor near %d, the lanes that would fit: %d lanes are used, each host may read more "
            "than its share; batchSize %d or %d would have %d lanes",
            batch_size, limit, lanes, better, better + limit, limit,
        )  # fmt: skip
    return LanePlan(num_units, batch_size, lanes, seed)


@functools.lru_cache(maxsize=64)
def _order(num_units: int, seed: int, epoch: int) -> Permutation:
    return Permutation(num_units, "units", seed, epoch)


def _divisors(number: int) -> list[int]:
    small = [candidate for candidate in range(1, int(number**0.5) + 1) if number % candidate == 0]
    return sorted({*small, *(number // candidate for candidate in small)})


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[-12:]))
    return shown if len(numbers) <= 12 else f"…, {shown}"
