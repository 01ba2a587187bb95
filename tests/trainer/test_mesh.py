import jax
import pytest

from tpujob_trainer.errors import TrainerError
from tpujob_trainer.mesh import build_mesh, require_devices


@pytest.mark.parametrize(("slices", "shape"), [(1, (1, 8)), (2, (2, 4)), (8, (8, 1))])
def test_slices_are_replicas_and_weights_stay_within(slices: int, shape: tuple[int, int]) -> None:
    mesh = build_mesh(slices=slices)
    assert mesh.axis_names == ("data", "fsdp")
    assert mesh.devices.shape == shape
    assert {device.id for device in mesh.devices.flat} == {device.id for device in jax.devices()}


def test_devices_of_a_slice_are_neighbours() -> None:
    assert [[device.id for device in row] for row in build_mesh(slices=2).devices] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_devices_that_do_not_divide_are_refused() -> None:
    with pytest.raises(TrainerError, match="8 devices, which do not divide over 3 slices"):
        build_mesh(slices=3)


def test_missing_devices_are_noticed() -> None:
    require_devices(num_processes=2, chips_per_host=4, devices=jax.devices())
    with pytest.raises(TrainerError, match=r"sees 8 devices \(cpu\) where spec.accelerator asks for 16: 4 hosts of 4"):
        require_devices(num_processes=4, chips_per_host=4, devices=jax.devices())
