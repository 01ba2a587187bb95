"""The batch size where none is given: as many rows as fit into memory, as far as more rows still pay.

The compiler says what a program needs; that grows with the rows, so two small programs tell where the limit is.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import jax

from tpujob_trainer.corpus.extract.program import Program

logger = logging.getLogger(__name__)

SAFE_FRACTION = 0.8
"""Of the free memory that a program may ask for; allocation leaves gaps."""
ENOUGH_TOKENS = 16_384
"""Of a device's batch: matrix products of so many rows keep a TPU busy, more only take memory."""
ENOUGH_CPU_TOKENS = 1_024
"""A CPU computes larger batches no faster."""
CPU_FRACTION = 0.25
"""Of this machine's free memory, which other workers and the page cache use as well."""


def largest_rows(measured: dict[int, int], limit_bytes: int, *, at_most: int) -> int:
    """The largest power of two of rows on each device whose program fits.

    Args:
        measured: bytes that the programs of two numbers of rows need on a device.
        limit_bytes: free on a device.
        at_most: rows beyond which nothing is gained.

    Raises:
        ValueError: not even one row fits; the message says how much is missing.
    """
    (few, small), (many, large) = sorted(measured.items())
    of_a_row = max(1, (large - small) // (many - few))
    fixed = max(0, small - few * of_a_row)
    fits = (limit_bytes - fixed) // of_a_row
    if fits < 1:
        raise ValueError(
            f"one row needs {(fixed + of_a_row) / 1e9:.2f} GB on a device, and {limit_bytes / 1e9:.2f} GB are free"
        )
    rows = min(fits, max(1, at_most))
    return 1 << (int(rows).bit_length() - 1)


def automatic_rows(program: Program, length: int) -> int:
    """Rows of a batch over all devices of this host.

    Raises:
        ValueError: not even one row for each device fits.
    """
    device = jax.local_devices()[0]
    enough = enough_rows(length) // jax.local_device_count()
    measured = {rows: _bytes_needed(program.compiled(rows * program.devices, length)) for rows in (1, 2)}
    rows = largest_rows(measured, free_bytes(device), at_most=enough)
    logger.info("Batch size: %d rows of %d tokens on each of %d devices", rows, length, program.devices)
    return rows * program.devices


def enough_rows(length: int) -> int:
    """Rows of a batch over all devices of this host, beyond which nothing is gained."""
    enough = ENOUGH_CPU_TOKENS if jax.local_devices()[0].platform == "cpu" else ENOUGH_TOKENS
    return max(1, enough // length) * jax.local_device_count()


def free_bytes(device: Any) -> int:
    """Memory of a device that a program may use."""
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return int((stats["bytes_limit"] - stats.get("bytes_in_use", 0)) * SAFE_FRACTION)
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    return int(available * CPU_FRACTION)


def _bytes_needed(compiled: Any) -> int:
    """On one device, beyond the weights, which are there already; each output is there three times on its way out."""
    needs = compiled.memory_analysis()
    return int(needs.temp_size_in_bytes + 3 * needs.output_size_in_bytes)
