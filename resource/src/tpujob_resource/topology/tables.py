"""The TPU slices that exist: one row per TPU generation, with the source of every fact.

Sources, all public GitHub repositories:
CA    GoogleCloudPlatform/cluster-autoscaler, the autoscaler that GKE itself runs
XPK   AI-Hypercomputer/xpk, src/xpk/core/system_characteristics.py
PW    google/pathways-job, internal/controller/pathwaysjob_controller.go
JAX   jax-ml/jax, jax/_src/tpu_info.py
DOCS  Cloud TPU documentation, "System architecture" of each generation
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

Shape = tuple[int, ...]
"""A slice in chips, one number per dimension, as in a topology label."""


@dataclass(frozen=True, kw_only=True)
class Generation:
    """The slices of one TPU generation."""

    name: str
    aliases: tuple[str, ...] = ()
    """Other prefixes of a size name, as in `v5litepod-16`."""
    label: str
    """Value of the node label `cloud.google.com/gke-tpu-accelerator` (CA: labels/system_labels.go)."""
    single_host_label: str | None = None
    """Its value on machines that are a slice by themselves; None: the same."""
    single_host_machine: str | None = None
    """Their machine type; None: the same."""
    cores_in_size: int
    """Units of a size name per chip: 2 if it counts TensorCores, 1 if it counts chips."""
    jax_devices_per_chip: int
    """Devices per chip in `jax.local_device_count()` (JAX): the two cores of a v4 or v5p chip are one device."""
    peak_flops: float
    """Floating-point operations per second of a chip in bfloat16 (DOCS)."""
    hbm_gib: int
    """Documented memory of a chip (DOCS); a program gets a little less."""
    machines: Mapping[int, str]
    """Machine type by chips per host (CA: machinetypes/deprecated_machine_types_config.go)."""
    single_host: Mapping[Shape, int]
    """Chips of the host, by shape, for shapes that fit on a single host (CA: machinetypes/deprecated_tpu_config.go)."""
    shapes: tuple[Shape, ...]
    """Shapes that have a size name, smallest first."""
    max_cubes: int = 0
    """Largest slice in cubes of 4x4x4 chips (XPK); 0: only the listed shapes exist."""
    any_order: bool = False
    """Whether dimensions may be in any order (XPK allows it for v4)."""
    multislice: bool = True
    """Whether slices can train together over the data-centre network (cloud.google.com/tpu/docs/tpu-gke-multislice)."""
    flex_start: bool = True
    """Whether flex-start provisioning offers it (CA: `dwsDisabled`)."""

    @property
    def dimensions(self) -> int:
        """The number of dimensions in a topology: 2 or 3."""
        return len(self.shapes[0])

    @property
    def sizes(self) -> dict[int, Shape]:
        """The canonical shape for each number in a size name."""
        sizes: dict[int, Shape] = {}
        for shape in self.shapes:
            sizes.setdefault(prod(shape) * self.cores_in_size, shape)
        return sizes

    def chips_per_host(self, shape: Shape) -> int:
        """Chips of each host of a slice; multi-host slices use only 4-chip machines."""
        return self.single_host.get(shape, MULTI_HOST_CHIPS)


MULTI_HOST_CHIPS = 4
"""Multi-host slices use 4-chip machines: 8-chip machines are single hosts of 2x4 (XPK, PW)."""


def _shapes(text: str) -> tuple[Shape, ...]:
    return tuple(tuple(int(n) for n in word.split("x")) for word in text.split())


# ai-on-gke/tpu-device-plugin and GKE's plan-tpus page; 2x2 has its own machine type.
_V3 = _shapes("2x2 4x4 4x8 8x8 8x16 16x16 16x32 32x32")
_FLAT = _shapes("1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16")
_FLAT_SINGLE_HOST: dict[Shape, int] = {(1, 1): 1, (2, 2): 4, (2, 4): 8}
_V4 = _shapes("2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x12 8x8x16 8x16x16")
# One list for v5p and tpu7x, the same in PW and XPK. Each size has the shape closest to a cube.
_V5P = _shapes(
    """
    2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x4x12 4x8x8 4x4x20 4x8x12 4x4x28 8x8x8 4x12x12 4x8x20 4x4x44 8x8x12 4x4x52
    4x8x28 4x12x20 8x8x16 4x4x68 8x12x12 4x4x76 8x8x20 4x12x28 4x8x44 4x4x92 8x12x16 4x20x20 4x8x52 12x12x12 8x8x28
    4x4x116 8x12x20 4x4x124 8x16x16 4x12x44 4x8x68 4x20x28 12x12x16 4x4x148 4x8x76 4x12x52 8x16x20 4x4x164 8x12x28
    4x4x172 8x8x44 12x12x20 4x8x92 4x4x188 12x16x16 4x28x28 8x20x20 4x12x68 8x8x52 4x4x212 12x12x24 4x20x44 8x16x28
    4x12x76 4x8x116 4x4x236 12x16x20 4x4x244 4x8x124 12x12x28 16x16x16 4x20x52 8x12x44 8x8x68 4x12x92 8x20x28
    12x16x24 4x8x148 12x20x20 8x8x76 4x28x44 8x12x52 16x16x20 12x12x36 4x8x164 12x16x28 4x20x68 4x8x172 4x12x116
    8x16x44 12x20x24 4x28x52 8x8x92 4x12x124 4x8x188 4x20x76 16x16x24 12x24x24 16x20x28
    """
)

SMALL_3D = _shapes("2x2x1 2x2x2 2x2x4 2x4x4")
"""Slices smaller than a 4x4x4 cube; in larger ones every dimension is a multiple of 4 (XPK)."""

GENERATIONS = {
    generation.name: generation
    for generation in (
        Generation(
            name="v3",
            label="tpu-v3-slice",
            single_host_label="tpu-v3-device",
            single_host_machine="ct3-hightpu-4t",
            cores_in_size=2,
            jax_devices_per_chip=2,
            peak_flops=123e12,
            hbm_gib=32,
            machines={4: "ct3p-hightpu-4t"},
            single_host={(2, 2): 4},
            shapes=_V3,
            multislice=False,
            flex_start=False,
        ),
        Generation(
            name="v4",
            label="tpu-v4-podslice",
            cores_in_size=2,
            jax_devices_per_chip=1,
            peak_flops=275e12,
            hbm_gib=32,
            machines={4: "ct4p-hightpu-4t"},
            single_host={(2, 2, 1): 4},
            shapes=_V4,
            max_cubes=64,
            any_order=True,
            flex_start=False,
        ),
        Generation(
            name="v5e",
            aliases=("v5litepod",),
            label="tpu-v5-lite-podslice",
            cores_in_size=1,
            jax_devices_per_chip=1,
            peak_flops=197e12,
            hbm_gib=16,
            machines={1: "ct5lp-hightpu-1t", 4: "ct5lp-hightpu-4t", 8: "ct5lp-hightpu-8t"},
            single_host=_FLAT_SINGLE_HOST,
            shapes=_FLAT,
        ),
        Generation(
            name="v5p",
            label="tpu-v5p-slice",
            cores_in_size=2,
            jax_devices_per_chip=1,
            peak_flops=459e12,
            hbm_gib=95,
            machines={4: "ct5p-hightpu-4t"},
            single_host={(2, 2, 1): 4},
            shapes=_V5P,
            max_cubes=140,
        ),
        Generation(
            name="v6e",
            label="tpu-v6e-slice",
            cores_in_size=1,
            jax_devices_per_chip=1,
            peak_flops=918e12,
            hbm_gib=32,
            machines={1: "ct6e-standard-1t", 4: "ct6e-standard-4t", 8: "ct6e-standard-8t"},
            single_host=_FLAT_SINGLE_HOST,
            shapes=_FLAT,
        ),
        Generation(
            name="tpu7x",
            label="tpu7x",
            cores_in_size=2,
            jax_devices_per_chip=2,
            peak_flops=2307e12,
            hbm_gib=192,
            machines={1: "tpu7x-standard-1t", 4: "tpu7x-standard-4t"},
            single_host={(1, 1, 1): 1, (2, 2, 1): 4},
            shapes=(*_shapes("1x1x1"), *_V5P, *_shapes("16x16x32 16x24x24")),
            max_cubes=144,
        ),
    )
}
