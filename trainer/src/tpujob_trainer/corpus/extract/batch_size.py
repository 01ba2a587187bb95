"""The batch size if none is given: as many rows as fit into memory and still gain speed.

The compiler reports the memory of a program; that grows with the rows, so the limit follows from two small programs.
"""

import logging
from pathlib import Path
from typing import Any

import jax

from tpujob_trainer.corpus.extract.programs import Program

logger = logging.getLogger(__name__)

SAFE_FRACTION = 0.8
"""Part of the free memory that a program may use; allocation leaves gaps."""
ENOUGH_TOKENS = 16_384
"""Tokens of a device's batch: matrix products with this many rows keep a TPU busy, more only take memory."""
ENOUGH_CPU_TOKENS = 1_024
"""Tokens of a CPU's batch: it computes larger ones no faster."""
CPU_FRACTION = 0.25
"""Part of this machine's free memory to use; other workers and the page cache use it as well."""


def largest_rows(measured: dict[int, int], limit_bytes: int, *, at_most: int) -> int:
    """The largest number of rows on each device, a power of two, whose program fits.

    Args:
        measured: bytes that a program needs on a device, for two numbers of rows.
        limit_bytes: free on a device.
        at_most: rows beyond which nothing is gained.

    Raises:
        ValueError: not even one row fits; the message has the needed and the free bytes.
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
    """Bytes needed on one device in addition to the weights; each output exists three times until it is fetched."""
    needs = compiled.memory_analysis()
    return int(needs.temp_size_in_bytes + 3 * needs.output_size_in_bytes)
