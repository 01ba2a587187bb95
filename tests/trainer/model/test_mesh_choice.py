"""Over every topology and preset: a model's state is divided, or refused with the divisor."""

import math

import jax
import numpy as np
import pytest

from tpujob_operator.topology.tables import GENERATIONS
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh_choice import MeshConfig, MeshShape, choose_mesh
from tpujob_trainer.model.partitioning import AXES
from tpujob_trainer.model.presets import PRESETS
from tpujob_trainer.model.shape import ModelConfig, ModelShape

DEVICES = sorted(
    {
        math.prod(shape) * generation.jax_devices_per_chip
        for generation in GENERATIONS.values()
        for shape in generation.shapes
    }
)
"""Of a slice of each topology in the operator's table."""


def resolved(preset: str) -> ModelShape:
    return ModelConfig(preset=preset).resolve(vocabulary=32_000, platform="tpu")  # type: ignore[arg-type]


def of_device(model: Model, mesh: MeshShape) -> int:
    """Numbers of the weights that one device keeps."""
    sizes = dict(zip(AXES, mesh.sizes, strict=True))

    def kept(leaf: jax.ShapeDtypeStruct, spec: jax.sharding.PartitionSpec) -> int:
        axes = [axis for part in spec for axis in ((part,) if isinstance(part, str) else part or ())]
        return leaf.size // math.prod(sizes[axis] for axis in axes)

    return sum(jax.tree.leaves(jax.tree.map(kept, model.abstract_weights, model.specs)))


@pytest.mark.parametrize("preset", PRESETS)
def test_state_is_divided_on_every_topology(preset: str) -> None:
    shape = resolved(preset)
    one = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape((1,) * len(AXES)), AXES)
    model = Model(shape, one)
    for devices in DEVICES:
        mesh = choose_mesh(MeshConfig(), shape, devices=devices, slices=1)
        assert math.prod(mesh.sizes) == devices
        # Norms and biases are whole on each device: a few numbers for each thousand, until few are left of these.
        vectors = 12 * shape.layers * max(shape.embed_dim, shape.heads * shape.head_dim)
        assert of_device(model, mesh) <= 1.1 * shape.num_parameters / mesh.fsdp + vectors, devices
        assert mesh.fsdp == math.gcd(devices, shape.embed_dim)


@pytest.mark.parametrize(
    ("devices", "fsdp", "data"), [(96, 32, 3), (768, 256, 3), (6144, 2048, 3)], ids=["4x4x6", "8x8x12", "16x16x24"]
)
def test_what_does_not_divide_is_left_to_data(devices: int, fsdp: int, data: int) -> None:
    mesh = choose_mesh(MeshConfig(), resolved("llama3-8b"), devices=devices, slices=1)
    assert (mesh.fsdp, mesh.data) == (fsdp, data)
    assert mesh.reason == f"fsdp {fsdp}: the largest divisor of {devices} devices that divides embedDim (4096)"


def test_fewer_rows_than_devices_divide_positions() -> None:
    mesh = choose_mesh(MeshConfig(), resolved("llama3-70b"), devices=256, slices=1, batch_size=64, sequence_length=8192)
    assert (mesh.context, mesh.fsdp, mesh.rows) == (4, 64, 64)
    assert "fewer rows" in mesh.reason


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (MeshConfig(fsdp=96), "fsdp: 96 devices do not divide embedDim (4096); 32 is the largest that does"),
        (MeshConfig(fsdp=64), "fsdp: 64 does not divide the 96 devices that are left of a slice"),
        (MeshConfig(tensor=3), "tensor: 3 does not divide heads (32)"),
        (MeshConfig(tensor=16), "tensor: 16 does not divide kvHeads (8)"),
        (MeshConfig(expert=2), "expert: 2 does not divide experts (there are none)"),
        (
            MeshConfig(context=5),
            "tensor: tensor x context x expert is 5, which does not divide the 96 devices of a slice",
        ),
        (MeshConfig(context=3), "context: context x expert is 3, which does not divide embedDim (4096)"),
    ],
    ids=["embed", "slice", "heads", "key heads", "experts", "positions", "context"],
)
def test_impossible_meshes_are_refused_with_the_divisor(config: MeshConfig, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        choose_mesh(config, resolved("llama3-8b"), devices=96, slices=1)
    assert str(caught.value) == message
