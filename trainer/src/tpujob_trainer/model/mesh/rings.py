"""Which matrices are sent from device to device while they are multiplied, instead of being gathered first.

libtpu 0.0.50.1 makes such rings of a product with a divided matrix if all devices are `fsdp`, and not too many. A ring
multiplies by two parts of the matrix at a time. If the divided dimension is summed over, it then reads and writes all
sums, in bfloat16: as many operations per byte as a part has rows. If these are few, that takes longer than waiting for
the gather.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tpujob_trainer.model.axes import FSDP, NO_RINGS, Rings
from tpujob_trainer.model.chips import BY_KIND, SCATTERED_AT_ONCE, Chip
from tpujob_trainer.model.shape import CustomShape, ModelShape

if TYPE_CHECKING:  # `tpujob check` computes the cost of meshes without JAX
    from jax.sharding import Mesh

BALANCE = 0.75
"""The fewest operations per byte that a ring needs, relative to `Chip.operations_per_byte`."""


def rings_of(mesh: Mesh, shape: ModelShape) -> Rings:
    """The rings that save time for a model on the devices of a mesh."""
    return rings_on(BY_KIND.get(mesh.devices.flat[0].device_kind), mesh.shape, shape)


def rings_on(chip: Chip | None, sizes: Mapping[str, int], shape: ModelShape | CustomShape) -> Rings:
    """As `rings_of`, from the number of devices along each axis of a mesh."""
    if chip is None or not chip.makes_rings or not scatters_beside(chip, sizes):
        return NO_RINGS
    if isinstance(shape, CustomShape) or shape.quantization is not None:
        return NO_RINGS
    devices = sizes[FSDP]

    def is_wide(size: int) -> bool:
        return size % devices == 0 and size // devices >= BALANCE * chip.operations_per_byte

    return Rings(
        mlp=not shape.experts and is_wide(shape.mlp_dim),
        attention=not shape.latent and is_wide(shape.embed_dim),
    )


def narrow_rings(mesh: Mesh, shape: ModelShape) -> bool:
    """Whether products in a narrow type use divided matrices if each part gives separate columns.

    Such a ring reads the left side once for each part: two operations per byte and column.
    """
    chip = BY_KIND.get(mesh.devices.flat[0].device_kind)
    if chip is None or shape.quantization is None or not scatters_beside(chip, mesh.shape):
        return False
    columns = shape.embed_dim / mesh.shape[FSDP]
    rate = chip.narrow_rates.get(shape.quantization, 1.0)
    return columns.is_integer() and 2 * columns >= BALANCE * rate * chip.operations_per_byte


def scatters_beside(chip: Chip, sizes: Mapping[str, int]) -> bool:
    """Whether gradients are scattered by rings of the products that compute them: observed on v5e, v5p and v6e."""
    is_alone = all(size == 1 for axis, size in sizes.items() if axis != FSDP)
    return (chip.makes_rings or chip.hides_gathers) and is_alone and 1 < sizes[FSDP] < SCATTERED_AT_ONCE
