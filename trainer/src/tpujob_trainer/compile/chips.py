"""Memory and rates of each TPU generation, as the compiler counts devices.

Rates are jax-ml/jax:jax/_src/tpu_info.py; link rates the Cloud TPU documentation, "System architecture" of each
generation (bidirectional, all links of a chip together). Memory is what the compiler leaves to a program, as
CompileTimeHbmOom names it (libtpu 0.0.50.1, `make tpu-compiler`).
"""

from __future__ import annotations

from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Chip:
    """One device as JAX counts them: half a chip on tpu7x."""

    topology: str
    """libtpu's prefix of a topology name."""
    flops: float
    """bfloat16 operations per second."""
    hbm_bytes: float
    hbm_bytes_per_second: float
    link_bytes_per_second: float
    options: tuple[tuple[str, str], ...] = ()
    """What `get_topology_desc` must be told to count devices as the machines do."""


CHIPS = {
    "v4": Chip(
        topology="v4",
        flops=275e12,
        hbm_bytes=30.75 * GIB,
        hbm_bytes_per_second=1.23e12,
        link_bytes_per_second=300e9,
        options=(("chip_config_name", "megacore"),),
    ),
    "v5e": Chip(
        topology="v5e",
        flops=197e12,
        hbm_bytes=15.75 * GIB,
        hbm_bytes_per_second=8.2e11,
        link_bytes_per_second=200e9,
    ),
    "v5p": Chip(
        topology="v5p",
        flops=459e12,
        hbm_bytes=95.73 * GIB,
        hbm_bytes_per_second=2.46e12,
        link_bytes_per_second=600e9,
    ),
    "v6e": Chip(
        topology="v6e",
        flops=918e12,
        hbm_bytes=31.24 * GIB,
        hbm_bytes_per_second=1.64e12,
        link_bytes_per_second=448e9,
    ),
    "tpu7x": Chip(
        topology="tpu7x",
        flops=2307e12 / 2,
        hbm_bytes=94.74 * GIB,
        hbm_bytes_per_second=3.7e12,
        link_bytes_per_second=600e9,
    ),
}
"""By generation, as `spec.accelerator` names it."""
