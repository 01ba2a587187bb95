"""Memory and rates of each TPU generation, as JAX and the compiler count devices.

Rates are from jax-ml/jax:jax/_src/tpu_info.py; link rates from the Cloud TPU documentation, "System architecture" of
each generation (bidirectional, all links of a chip together). Memory is what the compiler leaves to a program, as
CompileTimeHbmOom reports it (libtpu 0.0.50.1, `make tpu-compiler`).
"""

from dataclasses import dataclass, field

GIB = 2**30
LANES = 128
"""Numbers in a row of a vector register: the last dimension of an array is padded to a multiple of them."""
SCATTERED_AT_ONCE = 64
"""From this many `fsdp` devices on, libtpu 0.0.50.1 makes no rings of products whose sums are scattered."""


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
    """JAX devices per chip; chips of v4 and v5p are one device (megacore)."""
    narrow_rates: dict[str, float] = field(default_factory=dict)
    """Types of `model.quantization` that are multiplied faster than bfloat16, with the speedup."""
    hides_gathers: bool = False
    """Whether the compiler overlaps gathers of weights with computation (libtpu 0.0.50.1)."""
    makes_rings: bool = False
    """Whether the compiler multiplies parts of a sharded matrix while it sends others, instead of waiting for a gather
    (libtpu 0.0.50.1)."""
    options: tuple[tuple[str, str], ...] = ()
    """Arguments with which `get_topology_desc` counts devices as the machines do."""

    @property
    def operations_per_byte(self) -> float:
        """bfloat16 operations per byte of memory traffic from which a product is limited by arithmetic."""
        return self.flops / self.hbm_bytes_per_second

    def arithmetic_share(self, quantization: str | None) -> float:
        """Least time of a step's products with `model.quantization`, relative to bfloat16: two of three are narrow."""
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
"""Devices per chip of the generations that are not in `CHIPS`."""


def devices_per_chip(device_kind: str) -> int:
    """The number of JAX devices per chip; 1 for an unknown kind."""
    chip = BY_KIND.get(device_kind)
    return _EARLIER.get(device_kind, 1) if chip is None else chip.devices_per_chip
