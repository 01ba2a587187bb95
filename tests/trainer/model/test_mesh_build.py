import dataclasses

import jax
import pytest

from tpujob_trainer.errors import TrainerError
from tpujob_trainer.model.mesh.build import build_mesh, require_devices


@pytest.mark.parametrize(("slices", "shape"), [(1, (1, 1, 8)), (2, (2, 1, 4)), (8, (8, 1, 1))])
def test_slices_are_replicas_and_weights_stay_within(slices: int, shape: tuple[int, int]) -> None:
    mesh = build_mesh(slices=slices)
    assert mesh.axis_names == ("slice", "data", "fsdp", "expert", "context", "tensor")
    assert mesh.devices.shape == (*shape, 1, 1, 1)
    assert {device.id for device in mesh.devices.flat} == {device.id for device in jax.devices()}


def test_devices_of_a_slice_are_neighbours() -> None:
    assert [[device.id for device in row.flat] for row in build_mesh(slices=2).devices] == [[0, 1, 2, 3], [4, 5, 6, 7]]


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
