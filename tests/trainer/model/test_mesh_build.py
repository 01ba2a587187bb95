import dataclasses

import jax
import numpy as np
import pytest

from tpujob_trainer.model.mesh.build import arranged, build_mesh, require_devices
from tpujob_trainer.model.mesh.cost import MeshShape
from tpujob_trainer.model.partitioning import line_length
from tpujob_trainer.values.errors import TrainerError


@pytest.mark.parametrize(("slices", "shape"), [(1, (1, 1, 8)), (2, (2, 1, 4)), (8, (8, 1, 1))])
def test_slices_are_replicas_and_weights_stay_within(slices: int, shape: tuple[int, int]) -> None:
    mesh = build_mesh(slices=slices)
    assert mesh.axis_names == ("slice", "data", "fsdp", "expert", "context", "tensor")
    assert mesh.devices.shape == (*shape, 1, 1, 1)
    assert {device.id for device in mesh.devices.flat} == {device.id for device in jax.devices()}


def test_devices_of_a_slice_are_neighbours() -> None:
    assert [[device.id for device in row.flat] for row in build_mesh(slices=2).devices] == [[0, 1, 2, 3], [4, 5, 6, 7]]


@dataclasses.dataclass(frozen=True)
class Chip:
    coords: tuple[int, int, int]
    platform: str = "tpu"
    device_kind: str = "TPU v5p"
    core_on_chip: int = 0
    process_index: int = 0


@pytest.mark.parametrize(
    ("sides", "shape", "line"),
    [
        pytest.param((4, 4, 4), MeshShape(fsdp=8, expert=8), [(0, 0, 0), (0, 0, 1), (0, 0, 2)], id="shared sides"),
        pytest.param((4, 4, 4), MeshShape(fsdp=32, expert=2), [(0, 0, 0), (0, 0, 1), (0, 0, 2)], id="half a side"),
        pytest.param(
            (4, 4, 8), MeshShape(fsdp=8, expert=16), [(0, 0, 0), (0, 1, 0), (0, 2, 0)], id="sides of their own"
        ),
    ],
)
def test_devices_are_counted_along_the_sides_that_two_axes_share(
    sides: tuple[int, int, int], shape: MeshShape, line: list[tuple[int, int, int]]
) -> None:
    chips = [Chip(place) for place in np.ndindex(sides)]
    assert [chip.coords for chip in arranged(chips[::-1], shape).flat][:3] == line


@pytest.mark.parametrize(
    ("places", "length"),
    [
        pytest.param([(x, y, 0) for x in range(8) for y in range(8)], 8, id="two dimensions"),
        pytest.param([(x, y, z) for x in range(4) for y in range(8) for z in range(4)], 4, id="three"),
        pytest.param([(x // 2, x % 2, 0) for x in range(3)], 1, id="does not divide them"),
        pytest.param([(x, 0, 0) for x in range(4) for _ in range(2)], 1, id="two devices of a chip"),
        pytest.param([(), ()], 1, id="no places"),
    ],
)
def test_a_line_is_as_long_as_a_side(places: list[tuple[int, ...]], length: int) -> None:
    assert line_length(places) == length


def test_devices_that_do_not_divide_are_refused() -> None:
    with pytest.raises(TrainerError, match="8 devices, which do not divide over 3 slices"):
        build_mesh(slices=3)


@dataclasses.dataclass(frozen=True)
class Device:
    process_index: int
    device_kind: str = "TPU v4"


def require(*counts: int, chips_per_host: int = 4, kind: str = "TPU v4") -> None:
    devices = [Device(process, kind) for process, count in enumerate(counts) for _ in range(count)]
    require_devices(
        num_processes=len(counts),
        chips_per_host=chips_per_host,
        devices=devices,
        name=lambda process: f"process {process} on host {'abc'[process]}",
    )


def test_devices_that_were_asked_for_are_enough() -> None:
    require(4, 4, 4)
    require(8, 8, kind="TPU v2")


def test_host_with_other_devices_is_named() -> None:
    with pytest.raises(TrainerError) as caught:
        require(4, 3, 4)
    assert str(caught.value) == (
        "JAX sees 11 devices (TPU v4) where spec.accelerator asks for 12: 3 hosts of 4 chips, 4 devices each; "
        "process 1 on host b has 3; is a chip missing, or held by another process?"
    )
    assert caught.value.is_shared
    # As many in all, and yet wrong.
    with pytest.raises(TrainerError, match="process 0 on host a has 5, process 1 on host b has 3;"):
        require(5, 3)
