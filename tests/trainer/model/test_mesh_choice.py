"""Over every topology and preset: a model's state is divided, or refused with the divisor."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np
import pytest

from tpujob_resource.topology.tables import GENERATIONS
from tpujob_trainer.model.axes import AXES
from tpujob_trainer.model.chips import CHIPS
from tpujob_trainer.model.config import PRESETS, ModelConfig
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.choice import MeshConfig, choose_mesh, possible_meshes
from tpujob_trainer.model.mesh.cost import MeshShape, mesh_cost
from tpujob_trainer.model.shape import ModelShape

DEVICES = sorted(
    {
        math.prod(shape) * generation.jax_devices_per_chip
        for generation in GENERATIONS.values()
        for shape in generation.shapes
    }
)
"""Of a slice of each topology in the operator's table."""


def resolved(preset: str) -> ModelShape:
    return ModelConfig(preset=preset).resolve(vocabulary=32_000, platform="tpu")


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
        if shape.experts and shape.experts_bias:
            vectors += shape.layers * shape.experts * (2 * shape.mlp_dim + shape.embed_dim)
        assert of_device(model, mesh) <= 1.1 * shape.num_parameters / mesh.fsdp + vectors, devices
        assert mesh.fsdp == math.gcd(devices, *shape.divided_dims)


def test_no_mesh_divides_a_latent_into_parts_of_a_number() -> None:
    meshes = [*possible_meshes(resolved("deepseek-v3"), per_slice=1024, slices=1)]
    assert max(mesh.fsdp * mesh.expert for mesh in meshes) == 512
    assert all(512 % (mesh.fsdp * mesh.expert) == 0 for mesh in meshes)
    assert (
        max(mesh.fsdp * mesh.expert for mesh in possible_meshes(resolved("llama3-8b"), per_slice=1024, slices=1))
        == 1024
    )
    with pytest.raises(
        ValueError, match=r"fsdp: 1024 devices do not divide embedDim \(7168\) and the latents' widths \(512,"
    ):
        choose_mesh(MeshConfig(fsdp=1024), resolved("deepseek-v3"), devices=1024, slices=1)


def test_layers_without_experts_cost_what_a_dense_model_does() -> None:
    """All layers but one have none; that one has 22 GB of experts, of which an eighth is gathered."""
    almost = dataclasses.replace(resolved("deepseek-v3"), dense_layers=60)
    dense = dataclasses.replace(almost.stacks[0].shape, layers=61)
    run: dict[str, Any] = {"chip": CHIPS["v5p"], "rows": 256, "length": 4096}
    found = mesh_cost(almost, MeshShape(fsdp=32, expert=8), **run)
    without = mesh_cost(dense, MeshShape(fsdp=256), **run)
    assert without.sent < found.sent < 1.4 * without.sent
    assert without.peak < found.peak < 2 * without.peak


def test_layers_without_experts_send_no_tokens_to_experts() -> None:
    """What twice the devices of `expert` change is the doing of layers with experts alone."""
    mixture = dataclasses.replace(resolved("deepseek-v3"), dense_layers=0)
    half = dataclasses.replace(resolved("deepseek-v3"), dense_layers=30)
    run: dict[str, Any] = {"chip": CHIPS["v5p"], "rows": 256, "length": 4096}

    def of_experts(model: ModelShape) -> float:
        # As many shards, so that the weights outside of experts cost the same.
        sent = [mesh_cost(model, MeshShape(fsdp=256 // e, expert=e), **run).sent for e in (8, 16)]
        return sent[1] - sent[0]

    assert of_experts(half) == pytest.approx(of_experts(mixture) * 31 / 61, rel=1e-3)


@pytest.mark.parametrize(
    ("devices", "fsdp", "data"), [(96, 32, 3), (768, 256, 3), (6144, 2048, 3)], ids=["4x4x6", "8x8x12", "16x16x24"]
)
def test_what_does_not_divide_is_left_to_data(devices: int, fsdp: int, data: int) -> None:
    mesh = choose_mesh(MeshConfig(), resolved("llama3-8b"), devices=devices, slices=1)
    assert (mesh.fsdp, mesh.data) == (fsdp, data)
    assert mesh.reason == f"fsdp {fsdp}: the largest divisor of {devices} devices that divides embedDim (4096)"


@pytest.mark.parametrize(
    ("preset", "generation", "devices", "slices", "sizes"),
    [
        pytest.param("llama3-70b", "v5p", 128, 1, (1, 1, 64, 1, 1, 2), id="much memory"),
        pytest.param("llama3-70b", "v6e", 256, 1, (1, 1, 256, 1, 1, 1), id="no memory for wider shards"),
        pytest.param("llama3-8b", "v5p", 64, 1, (1, 1, 64, 1, 1, 1), id="a small model"),
        pytest.param("llama3-8b", "v5e", 128, 2, (2, 1, 64, 1, 1, 1), id="gathers that do not wait"),
        pytest.param("llama3-8b", "v5p", 32, 1, (1, 1, 32, 1, 1, 1), id="a small slice"),
        pytest.param("mixtral-8x7b", "v5p", 32, 1, (1, 1, 4, 8, 1, 1), id="experts"),
        pytest.param("mixtral-8x22b", "v5p", 64, 1, (1, 1, 8, 8, 1, 1), id="experts, and half of the memory is full"),
        pytest.param("llama3.1-405b", "v5p", 256, 1, (1, 1, 256, 1, 1, 1), id="no memory for anything else"),
        pytest.param("mixtral-8x7b", "v5p", 8, 1, (1, 1, 8, 1, 1, 1), id="experts on a small slice"),
        pytest.param("gpt-oss-20b", "v6e", 16, 1, (1, 1, 8, 2, 1, 1), id="experts, whose gradients wait everywhere"),
        pytest.param("gpt-oss-20b", "v5p", 64, 1, (1, 4, 4, 4, 1, 1), id="heads that are not divided"),
    ],
)
def test_a_large_slice_has_the_mesh_that_waits_least(
    preset: str, generation: str, devices: int, slices: int, sizes: tuple[int, ...]
) -> None:
    run: dict[str, Any] = {"devices": devices, "slices": slices, "batch_size": devices, "sequence_length": 8192}
    found = choose_mesh(MeshConfig(), resolved(preset), **run, chip=CHIPS[generation])
    assert found.sizes == sizes
    assert ("a step waits for" in found.reason) == (found.fsdp < devices // slices)
    by_hand = choose_mesh(MeshConfig(fsdp=devices // slices), resolved(preset), **run, chip=CHIPS[generation])
    assert by_hand.fsdp == devices // slices


def test_a_mesh_that_waits_least_says_how_much() -> None:
    run: dict[str, Any] = {"devices": 128, "slices": 1, "batch_size": 128, "sequence_length": 8192}
    found = choose_mesh(MeshConfig(), resolved("llama3-70b"), **run, chip=CHIPS["v5p"])
    assert found.reason == "fsdp 64, tensor 2: a step waits for about 310 GB, 408 with fsdp 128"


COMPILED = {
    "llama3-70b, fsdp 128": ("llama3-70b", MeshShape(fsdp=128), None, 28.2),
    "llama3-70b, data 2, fsdp 64": ("llama3-70b", MeshShape(data=2, fsdp=64), 543, 36.9),
    "llama3-70b, fsdp 64, tensor 2": ("llama3-70b", MeshShape(fsdp=64, tensor=2), 315, 36.7),
    "llama3-70b, fsdp 32, tensor 4": ("llama3-70b", MeshShape(fsdp=32, tensor=4), 427, 58.5),
    "mixtral-8x7b, fsdp 32": ("mixtral-8x7b", MeshShape(fsdp=32), 358, 32.4),
    "mixtral-8x7b, fsdp 4, expert 8": ("mixtral-8x7b", MeshShape(fsdp=4, expert=8), 118, 41.9),
    "mixtral-8x7b, fsdp 8, expert 4": ("mixtral-8x7b", MeshShape(fsdp=8, expert=4), 120, 34.5),
    "mixtral-8x22b, fsdp 8, expert 8": ("mixtral-8x22b", MeshShape(fsdp=8, expert=8), 376, 61.3),
    "llama3.1-405b, fsdp 256": ("llama3.1-405b", MeshShape(fsdp=256), None, 80.1),
}
"""GB that a device sends, and its peak, of steps compiled for v5p by libtpu 0.0.50.1, 8,192 positions a device.

None: compiled before gradients were scattered side by side.
"""


@pytest.mark.parametrize(("preset", "mesh", "sent", "peak"), COMPILED.values(), ids=COMPILED)
def test_arithmetic_is_near_the_compiled_step(preset: str, mesh: MeshShape, sent: float | None, peak: float) -> None:
    """Bytes within a tenth; memory from a twentieth below to a fifth above."""
    found = mesh_cost(resolved(preset), mesh, CHIPS["v5p"], rows=math.prod(mesh.sizes), length=8192)
    assert sent is None or found.sent / 1e9 == pytest.approx(sent, rel=0.1)
    assert 0.95 * peak < found.peak / 1e9 < 1.2 * peak


def test_gathers_wait_where_the_compiler_does_not_hide_them() -> None:
    mesh = MeshShape(data=2, fsdp=16)
    costs = {name: mesh_cost(resolved("llama3-8b"), mesh, CHIPS[name], rows=32, length=8192) for name in ("v5e", "v6e")}
    assert costs["v6e"].waiting == costs["v6e"].sent == costs["v5e"].sent
    # Whole sums of gradients over both axes, which have the bytes of the two gathers.
    assert costs["v5e"].waiting == pytest.approx(costs["v5e"].sent / 2, rel=0.02)


def test_rings_leave_only_the_gathers_of_attention_waiting() -> None:
    """All devices of a small slice are fsdp; v6e makes no rings of attention's matrices, v5p one of two."""
    shape = resolved("llama3-8b")
    attention = 2 * shape.layers * shape.embed_dim * (2 * shape.heads + 2 * shape.kv_heads) * shape.head_dim * 15 / 16
    waiting = {
        name: mesh_cost(shape, MeshShape(fsdp=16), CHIPS[name], rows=16, length=8192).waiting
        for name in ("v5e", "v5p", "v6e")
    }
    assert waiting == {
        "v5e": 0,
        "v5p": pytest.approx(attention, rel=0.01),
        "v6e": pytest.approx(2 * attention, rel=0.01),
    }


def test_gathers_of_a_mixture_do_not_wait_for_more_than_there_is() -> None:
    """Its rings are those of attention alone; gradients of experts are sums that wait."""
    shape, mesh = resolved("mixtral-8x22b"), MeshShape(fsdp=16)
    found = mesh_cost(shape, mesh, CHIPS["v5p"], rows=16, length=8192)
    assert found.waiting < found.sent
    assert mesh_cost(shape, mesh, CHIPS["v5e"], rows=16, length=8192).waiting > 0


def test_parts_of_a_batch_gather_and_scatter_each_and_replicas_sum_once() -> None:
    shape = resolved("llama3-8b")

    def sent(mesh: MeshShape, parts: int) -> float:
        return mesh_cost(shape, mesh, CHIPS["v5p"], rows=64, length=1024, parts=parts).sent

    one, two = MeshShape(fsdp=16), MeshShape(data=2, fsdp=16)
    assert sent(one, 4) == 4 * sent(one, 1)
    dense = 2 * (shape.num_parameters - shape.vocabulary_parameters)
    assert sent(two, 2) - 2 * sent(one, 1) == pytest.approx(dense / 16, rel=0.01)


def test_without_recomputation_activations_are_summed_four_times() -> None:
    shape = resolved("llama3-8b")
    kept = dataclasses.replace(shape, remat="none")

    def of_tensor(model: ModelShape) -> float:
        sent = [mesh_cost(model, MeshShape(tensor=t), CHIPS["v5p"], rows=1, length=8192).sent for t in (1, 2)]
        return sent[1] - sent[0]

    assert of_tensor(kept) == pytest.approx(of_tensor(shape) * 4 / 5)


def test_a_mesh_with_context_is_left_as_it_is() -> None:
    run: dict[str, Any] = {"devices": 256, "slices": 1, "batch_size": 128, "sequence_length": 8192}
    found = choose_mesh(MeshConfig(), resolved("llama3-8b"), **run, chip=CHIPS["v5p"])
    assert found.sizes == (1, 1, 128, 1, 2, 1)


def test_heads_with_sinks_are_not_divided() -> None:
    """As a model without them would be."""
    shape = dataclasses.replace(resolved("llama3-70b"), sinks=True)
    run: dict[str, Any] = {"devices": 128, "slices": 1, "batch_size": 128, "sequence_length": 8192}
    assert choose_mesh(MeshConfig(), shape, **run, chip=CHIPS["v5p"]).tensor == 1


def test_fewer_rows_than_devices_divide_positions() -> None:
    mesh = choose_mesh(MeshConfig(), resolved("llama3-70b"), devices=256, slices=1, batch_size=64, sequence_length=8192)
    assert (mesh.context, mesh.fsdp, mesh.rows) == (4, 64, 64)
    assert "fewer rows" in mesh.reason


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (MeshConfig(fsdp=96), "fsdp: 96 devices do not divide embedDim (4096); 32 is the largest that does"),
        (
            MeshConfig(fsdp=24, context=2),
            "fsdp: 48 devices do not divide embedDim (4096); 16 is the largest that does",
        ),
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
    ids=["embed", "embed, beside context", "slice", "heads", "key heads", "experts", "positions", "context"],
)
def test_impossible_meshes_are_refused_with_the_divisor(config: MeshConfig, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        choose_mesh(config, resolved("llama3-8b"), devices=96, slices=1)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("batch_size", "sequence_length", "context"),
    [
        (None, 4096, 1),
        (8, None, 1),
        (8, 4096, 1),
        (7, 4096, 8),
        (4, 4096, 2),
        (2, 4096, 4),
        (1, 4096, 8),
        (4, 4097, 1),
        (3, 4096, 8),
    ],
)
def test_context_is_the_least_that_gives_each_device_a_row(
    batch_size: int | None, sequence_length: int | None, context: int
) -> None:
    config = MeshConfig()
    found = choose_mesh(
        config, resolved("llama3-8b"), devices=8, slices=1, batch_size=batch_size, sequence_length=sequence_length
    )
    assert found.context == context


def test_mesh_that_nobody_chose_is_one_device() -> None:
    assert MeshShape().sizes == (1,) * len(AXES)
    assert MeshShape().rows == 1


EXPERTS = dataclasses.replace(resolved("llama3-8b"), experts=8)
BY_HAND: dict[str, tuple[MeshConfig, dict[str, int | None], tuple[int, ...], str]] = {
    # name: (what is said, devices and batch, the mesh, why)
    "all axes": (
        MeshConfig(tensor=2, context=2, expert=2),
        {"devices": 64, "slices": 2},
        (2, 1, 4, 2, 2, 2),
        "fsdp 4: all devices that no other axis takes",
    ),
    "fsdp as well": (MeshConfig(tensor=2, fsdp=2), {"devices": 32, "slices": 2}, (2, 4, 2, 1, 1, 2), "fsdp as given"),
    "as many rows as devices": (
        MeshConfig(),
        {"devices": 16, "slices": 2, "batch_size": 16, "sequence_length": 64},
        (2, 1, 8, 1, 1, 1),
        "fsdp 8: all devices that no other axis takes",
    ),
    "fewer rows, of two slices": (
        MeshConfig(),
        {"devices": 16, "slices": 2, "batch_size": 8, "sequence_length": 64},
        (2, 1, 4, 1, 2, 1),
        "fsdp 4: all devices that no other axis takes; context 2: a batch has fewer rows than there are devices",
    ),
    "fewer rows beside tensor": (
        MeshConfig(tensor=2),
        {"devices": 8, "slices": 1, "batch_size": 2, "sequence_length": 64},
        (1, 1, 2, 1, 2, 2),
        "fsdp 2: all devices that no other axis takes; context 2: a batch has fewer rows than there are devices",
    ),
    "fewer rows beside experts": (
        MeshConfig(expert=2),
        {"devices": 8, "slices": 1, "batch_size": 4, "sequence_length": 64},
        (1, 1, 2, 2, 2, 1),
        "fsdp 2: all devices that no other axis takes; context 2: a batch has fewer rows than there are devices",
    ),
    "as few rows as experts": (
        MeshConfig(expert=2),
        {"devices": 8, "slices": 1, "batch_size": 2, "sequence_length": 64},
        (1, 1, 1, 2, 4, 1),
        "fsdp 1: all devices that no other axis takes; context 4: a batch has fewer rows than there are devices",
    ),
    "fewer rows than experts": (
        MeshConfig(expert=2),
        {"devices": 8, "slices": 1, "batch_size": 1, "sequence_length": 64},
        (1, 1, 4, 2, 1, 1),
        "fsdp 4: all devices that no other axis takes",
    ),
    "fewer rows, and context as said": (
        MeshConfig(context=4),
        {"devices": 8, "slices": 1, "batch_size": 4, "sequence_length": 64},
        (1, 1, 2, 1, 4, 1),
        "fsdp 2: all devices that no other axis takes",
    ),
}


@pytest.mark.parametrize(("config", "run", "sizes", "reason"), BY_HAND.values(), ids=BY_HAND.keys())
def test_axes_said_by_hand_leave_the_rest_to_fsdp(
    config: MeshConfig, run: dict[str, Any], sizes: tuple[int, ...], reason: str
) -> None:
    found = choose_mesh(config, EXPERTS, **run)
    assert (found.sizes, found.reason) == (sizes, reason)
    assert found.rows == math.prod(sizes[:4])


@pytest.mark.parametrize(
    ("config", "run", "message"),
    [
        (MeshConfig(), {"devices": 8, "slices": 3}, "slices: 3 do not divide 8 devices"),
        (MeshConfig(expert=3), {"devices": 6, "slices": 1}, "expert: 3 does not divide experts (8)"),
        (
            MeshConfig(context=2),
            {"devices": 8, "slices": 1, "sequence_length": 63},
            "context: 2 does not divide sequenceLength (63)",
        ),
    ],
    ids=["slices", "experts", "positions of a row"],
)
def test_numbers_that_do_not_divide_are_named(config: MeshConfig, run: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        choose_mesh(config, EXPERTS, **run)
    assert str(caught.value) == message
