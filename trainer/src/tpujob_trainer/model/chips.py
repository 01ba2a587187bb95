"""Memory and rates of each TPU generation, as JAX and the compiler count devices.

Rates are jax-ml/jax:jax/_src/tpu_info.py; link rates the Cloud TPU documentation, "System architecture" of each
generation (bidirectional, all links of a chip together). Memory is what the compiler leaves to a program, as
CompileTimeHbmOom names it (libtpu 0.0.50.1, `make tpu-compiler`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

GIB = 2**30
LANES = 128
"""Numbers of a row of a vector register: the last dimension of an array is padded to a multiple of them."""
SCATTERED_AT_ONCE = 64
"""Devices of `fsdp` from which libtpu 0.0.50.1 makes no rings of the products whose sums are scattered."""


@dataclass(frozen=True, kw_only=True)
class Chip:
    """One device as JAX counts them: half a chip on tpu7x."""

    topology: str
    """libtpu's prefix of a topology name."""
    kinds: tuple[str, ...]
    """JAX's device kinds."""
    flops: float
    """bfloat16 operations per second."""
    hbm_bytes: float
    hbm_bytes_per_second: float
    link_bytes_per_second: float
    devices_per_chip: int = 1
    """As JAX shows a chip; v4 and v5p are one device (megacore)."""
    narrow_rates: dict[str, float] = field(default_factory=dict)
    """Types of `model.quantization` that are multiplied faster than bfloat16, and how many times."""
    hides_gathers: bool = False
    """Whether the compiler lets gathers of weights run beside arithmetic (libtpu 0.0.50.1)."""
    makes_rings: bool = False
    """Whether it multiplies parts of a divided matrix while others travel, where gathers would wait
    (libtpu 0.0.50.1)."""
    options: tuple[tuple[str, str], ...] = ()
    """What `get_topology_desc` needs to count devices as the machines do."""

    @property
    def operations_per_byte(self) -> float:
        """Of bfloat16 for each byte of memory, from which a product takes as long as its arithmetic."""
        return self.flops / self.hbm_bytes_per_second

    def arithmetic_share(self, quantization: str | None) -> float:
        """Least time of a step's products with `model.quantization`, over that without: two of three are narrow."""
        return (1 + 2 / self.narrow_rates.get(quantization or "", 1.0)) / 3


CHIPS = {
    "v4": Chip(
        topology="v4",
        kinds=("TPU v4",),
        flops=275e12,
        hbm_bytes=30.75 * GIB,
        hbm_bytes_per_second=1.23e12,
        link_bytes_per_second=300e9,
        options=(("chip_config_name", "megacore"),),
    ),
    "v5e": Chip(
        topology="v5e",
        hides_gathers=True,
        narrow_rates={"int8": 2.0},
        kinds=("TPU v5 lite", "TPU v5e"),
        flops=197e12,
        hbm_bytes=15.75 * GIB,
        hbm_bytes_per_second=8.2e11,
        link_bytes_per_second=200e9,
    ),
    "v5p": Chip(
        topology="v5p",
        makes_rings=True,
        narrow_rates={"int8": 2.0},
        kinds=("TPU v5", "TPU v5p"),
        flops=459e12,
        hbm_bytes=95.73 * GIB,
        hbm_bytes_per_second=2.46e12,
        link_bytes_per_second=600e9,
    ),
    "v6e": Chip(
        topology="v6e",
        makes_rings=True,
        narrow_rates={"int8": 2.0},
        kinds=("TPU v6 lite", "TPU v6e"),
        flops=918e12,
        hbm_bytes=31.24 * GIB,
        hbm_bytes_per_second=1.64e12,
        link_bytes_per_second=448e9,
    ),
    "tpu7x": Chip(
        topology="tpu7x",
        narrow_rates={"fp8": 2.0},
        kinds=("TPU7x",),
        devices_per_chip=2,
        flops=2307e12 / 2,
        hbm_bytes=94.74 * GIB,
        hbm_bytes_per_second=3.7e12,
        link_bytes_per_second=600e9,
    ),
}
"""By generation, as `spec.accelerator` names it."""

BY_KIND = {kind: chip for chip in CHIPS.values() for kind in chip.kinds}
"""By JAX's device kind (jax-ml/jax:jax/_src/tpu_info.py)."""

_EARLIER = {"TPU v2": 2, "TPU v3": 2}
"""Devices of a chip of the generations that the table leaves out."""


def devices_per_chip(device_kind: str) -> int:
    """How many devices JAX shows for a chip; 1 for a kind that is not known."""
    chip = BY_KIND.get(device_kind)
    return _EARLIER.get(device_kind, 1) if chip is None else chip.devices_per_chip
