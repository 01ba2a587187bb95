"""Which lane reads which unit, and fills which rows of the global batch: arithmetic only.

In a mixture, each lane becomes one lane per source, and these share the rows that the one lane would fill. The source
of a row is a function of the seed and the row's number in the whole run, so that any few hundred consecutive rows hold
the sources by their weights.

The plan depends on the data set, the batch size and the seed, never on the number of processes. Therefore, the k-th
global batch is the same however the rows are distributed over hosts.
"""

import functools
import logging
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.data.manifest.manifest import Manifest
from tpujob_trainer.data.manifest.permutation import Permutation, key_of, row_order
from tpujob_trainer.values.errors import ConfigurationError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LanePlan:
    """The division of units over `lanes` lanes that fill a global batch of `batch_size` rows."""

    num_units: int
    """Of all sources."""
    batch_size: int
    lanes: int
    """Of each source."""
    seed: int
    epochs: int | None = None
    """Passes over the data; None: no limit."""
    source_units: tuple[range, ...] = ()
    """The units of each source; empty: there is one source, which has all units."""
    weights: tuple[float, ...] = (1.0,)
    """The share of rows of each source; they add up to 1."""
    blocks_attention: bool = True
    """Whether documents that share a row are kept apart."""
    max_skipped_fraction: float = 1.0
    """The largest fraction of the rows read that may be unusable."""
    retry_seconds: float = 0.0
    """How long reads of an unreadable or changed file are retried."""

    def __post_init__(self) -> None:
        if not self.source_units:
            object.__setattr__(self, "source_units", (range(self.num_units),))
        if self.batch_size < 1:
            raise ConfigurationError(f"spec.trainer.batchSize: {self.batch_size} is less than 1")
        if self.lanes < 1 or self.batch_size % self.lanes:
            raise ConfigurationError(
                f"spec.trainer.data.lanes: {self.lanes} does not divide batchSize {self.batch_size}; "
                f"these do: {_listed(_divisors(self.batch_size))}"
            )
        fewest = min(map(len, self.source_units))
        if self.lanes > fewest:
            fitting = [number for number in _divisors(self.batch_size) if number <= fewest]
            allowed = f"these work: {_listed(fitting)}" if fitting else "the data has no rows"
            whose = "the data" if self.num_sources == 1 else "a source"
            raise ConfigurationError(
                f"spec.trainer.data.lanes: {self.lanes} is more than the {fewest} units of {whose}; {allowed}"
            )

    @property
    def num_sources(self) -> int:
        """The number of sources that rows come from."""
        return len(self.source_units)

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

    def units_in(self, lane: int, source: int = 0) -> int:
        """How many units a lane reads in one epoch; at least one."""
        return (len(self.source_units[source]) - lane + self.lanes - 1) // self.lanes

    def unit(self, lane: int, epoch: int, index: int, source: int = 0) -> int:
        """The unit that is the `index`-th of a lane in an epoch: π(seed, epoch)[lane::lanes][index]."""
        units = self.source_units[source]
        return units[_order(len(units), self.seed, epoch, source)[lane + index * self.lanes]]

    def sources_of_rows(self, batch: int) -> np.ndarray:
        """The source of each row of the `batch`-th global batch, int64 [batch_size].

        The multiples of the golden ratio, modulo 1, are spread more evenly than random numbers, in every stretch: each
        source gets its share of each batch up to one or two rows.
        """
        if self.num_sources == 1:
            return np.zeros(self.batch_size, dtype=np.int64)
        place = row_order(self.batch_size, "rows of a batch", self.seed, batch).astype(np.uint64)
        with np.errstate(over="ignore"):
            number = np.uint64((batch * self.batch_size) % (1 << 64)) + place
            spread = number * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key_of("mixture", self.seed))
        ends = np.cumsum(self.weights)[:-1] * 2.0**64
        return np.searchsorted(ends, spread.astype(np.float64), side="right")


def plan_lanes(
    manifest: Manifest, config: DataConfig, *, batch_size: int, seed: int, begun_with: int | None = None
) -> LanePlan:
    """The plan for a run: as many lanes as configured, else as many as units, memory and divisors allow.

    Args:
        manifest: the data.
        config: may state the number of lanes, or how much memory they may take.
        batch_size: rows of the global batch.
        seed: of the order.
        begun_with: lanes of the run that is continued (`lanes` of `describe_data`); None for a new run.

    Raises:
        ConfigurationError: the lanes asked for do not divide the batch, or are more than the units.
    """
    units = manifest.source_units
    fewest = min(map(len, units))

    def plan(lanes: int) -> LanePlan:
        return LanePlan(
            manifest.num_units,
            batch_size,
            lanes,
            seed,
            config.epochs,
            units,
            config.weights(),
            config.block_cross_document_attention,
            config.max_skipped_fraction,
            config.retry_seconds,
        )

    fixed = config.lanes if config.lanes is not None else begun_with
    if fixed is not None:
        return plan(fixed)
    if batch_size < 1:
        raise ConfigurationError(f"spec.trainer.batchSize: {batch_size} is less than 1")
    affordable = max(1, config.buffer_bytes // (2 * len(units) * max(1, manifest.largest_unit_bytes)))
    limit = min(batch_size, fewest, affordable)
    lanes = max((number for number in _divisors(batch_size) if number <= limit), default=1)
    if fewest < batch_size:
        logger.warning(
            "The data has only %d units for batchSize %d: %d lanes fill %d rows each",
            fewest, batch_size, lanes, batch_size // lanes,
        )  # fmt: skip
    if 2 * lanes <= limit:
        better = batch_size // limit * limit
        logger.warning(
            "batchSize %d has no divisor near %d, the lanes that would fit: %d lanes are used, each host may read more "
            "than its share; batchSize %d or %d would have %d lanes",
            batch_size, limit, lanes, better, better + limit, limit,
        )  # fmt: skip
    return plan(lanes)


@functools.lru_cache(maxsize=64)
def _order(num_units: int, seed: int, epoch: int, source: int) -> Permutation:
    return Permutation(num_units, "units", seed, epoch, source)


def _divisors(number: int) -> list[int]:
    small = [candidate for candidate in range(1, int(number**0.5) + 1) if number % candidate == 0]
    return sorted({*small, *(number // candidate for candidate in small)})


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[-12:]))
    return shown if len(numbers) <= 12 else f"…, {shown}"
