"""When one slice reads for all; the exchange itself, with several processes, is in tests/multiprocess."""

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tpujob_trainer.checkpoint.one_slice import are_separate, one_slice


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        ([{0, 1}, {2, 3}], True),
        ([{0}, {1}, {2}], True),
        ([{0, 1}], False),
        ([{0}, {0}], False),
        ([{0, 1}, {1, 2}], False),
    ],
    ids=["two slices", "three of one host", "one slice", "one process", "process of two slices"],
)
def test_slices_have_processes_of_their_own(processes, expected):
    assert are_separate(processes) == expected


@pytest.mark.parametrize(
    ("spec", "axis"),
    [(PartitionSpec(), None), (PartitionSpec(), "slice"), (PartitionSpec("slice"), "slice"), (None, "slice")],
    ids=["no axis of copies", "one process", "divided over slices", "array without a mesh"],
)
def test_every_process_reads_where_slices_are_no_copies(spec, axis):
    device = jax.devices()[0]
    mesh = Mesh(np.array([[device]]), ("slice", "fsdp"))
    sharding = jax.sharding.SingleDeviceSharding(device) if spec is None else NamedSharding(mesh, spec)
    tree = {"w": jax.ShapeDtypeStruct((4, 4), np.float32, sharding=sharding)}
    assert one_slice(tree, axis, process_id=0) is None
