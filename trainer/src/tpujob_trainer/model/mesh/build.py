"""The mesh: all devices of the run on the axes of `partitioning.AXES`.

Weights are divided within a slice, where the links are fast; slices are replicas, and the data-centre network between
them carries only gradients.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh

from tpujob_trainer.model.axes import AXES
from tpujob_trainer.model.chips import devices_per_chip
from tpujob_trainer.model.mesh.cost import MeshShape
from tpujob_trainer.values.errors import TrainerError


def build_mesh(*, slices: int, devices: Sequence[jax.Device] | None = None, shape: MeshShape | None = None) -> Mesh:
    """The mesh of a run of `slices` slices.

    Args:
        slices: number of slices.
        devices: of the run; None: all that JAX sees.
        shape: devices along each axis; None: all devices of a slice are `fsdp`.

    Raises:
        TrainerError: the devices do not divide over the slices.
    """
    devices = jax.devices() if devices is None else list(devices)
    if len(devices) % slices:
        raise TrainerError(f"JAX sees {len(devices)} devices, which do not divide over {slices} slices")
    shape = shape or MeshShape(slice=slices, fsdp=len(devices) // slices)
    assert math.prod(shape.sizes) == len(devices)
    return Mesh(arranged(devices, shape), AXES, axis_types=(AxisType.Auto,) * len(AXES))


def require_devices(
    *, num_processes: int, chips_per_host: int, devices: Sequence[jax.Device], name: Callable[[int], str]
) -> None:
    """Checks that JAX sees the requested devices.

    Args:
        num_processes: One for each host.
        chips_per_host: As requested.
        devices: Of all processes.
        name: Returns the name of a process, for messages.

    Raises:
        TrainerError: JAX sees more or fewer devices: a host lacks chips, or has chips that were not requested. The
            same on all processes.
    """
    kind = devices[0].device_kind
    of_one = chips_per_host * devices_per_chip(kind)
    found = Counter(device.process_index for device in devices)
    wrong = [f"{name(i)} has {found[i]}" for i in range(num_processes) if found[i] != of_one]
    if wrong or len(devices) != num_processes * of_one:
        error = TrainerError(
            f"JAX sees {len(devices)} devices ({kind}) where spec.accelerator asks for {num_processes * of_one}: "
            f"{num_processes} hosts of {chips_per_host} chips, {of_one} devices each; {', '.join(wrong)}; "
            "is a chip missing, or held by another process?"
        )
        error.is_shared = True
        raise error


def arranged(devices: Sequence[jax.Device], shape: MeshShape) -> np.ndarray:
    """All devices of the run in a mesh's order, so that neighbours along an axis are neighbours in the slice."""
    inner = (1, *shape.sizes[1:])
    if shape.slice == 1:
        # Several shapes of a slice have no arrangement along its links; then neighbours are in JAX's order.
        if _shares_sides(devices, shape):
            return np.array(sorted(devices, key=lambda device: tuple(device.coords))).reshape(inner)
        return mesh_utils.create_device_mesh(inner, devices=devices, allow_split_physical_axes=True)
    if hasattr(devices[0], "slice_index") and len({device.slice_index for device in devices}) == shape.slice:
        outer = (shape.slice, *(1,) * (len(inner) - 1))
        return mesh_utils.create_hybrid_device_mesh(inner, outer, devices=devices, allow_split_physical_axes=True)
    # Devices without a slice index (CPU): processes are numbered slice by slice, so their order is that of slices.
    ordered = sorted(devices, key=lambda device: (device.process_index, device.id))
    return np.array(ordered).reshape(shape.sizes)


def _shares_sides(devices: Sequence[jax.Device], shape: MeshShape) -> bool:
    """Whether all devices of a slice are `fsdp` and `expert`, and no arrangement gives each of them separate sides.

    With devices in the order of coordinates, each matrix is then still gathered in as many dimensions as the slice has;
    in JAX's order, libtpu turns these gathers into sums of padded whole matrices.
    """
    places = {tuple(getattr(device, "coords", ())) for device in devices}
    is_flat = any(len({*along}) == 1 for along in zip(*places, strict=True))
    if len(places) < len(devices) or is_flat or shape.fsdp * shape.expert < len(devices) or shape.expert == 1:
        return False
    try:
        mesh_utils.create_device_mesh((shape.fsdp, shape.expert), devices=devices)
    except NotImplementedError:
        return True
    return False
