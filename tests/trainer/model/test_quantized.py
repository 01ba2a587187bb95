"""Products in a narrow type are near those they stand for, and models learn by them."""

import dataclasses
import functools
import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.trainer.train.test_parity import LOSSES, SHAPE, TOLERANCE, batch, begun, losses
from tpujob_trainer.model import decoder
from tpujob_trainer.model.chips import BY_KIND, CHIPS
from tpujob_trainer.model.config import ModelConfig
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.mesh.cost import MeshShape
from tpujob_trainer.model.mesh.ring_product import narrow_over
from tpujob_trainer.model.mesh.rings import narrow_rings
from tpujob_trainer.model.partitioning import POSITIONS, REPLICATED
from tpujob_trainer.model.quantized import product, require_faster
from tpujob_trainer.model.shape import ModelShape, Quantization
from tpujob_trainer.values.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("compiled_once")

NEAR: dict[Quantization, float] = {"int8": 0.02, "fp8": 0.05}
"""Of a product of random numbers: the norm of the difference, relative. A step of int8 is 1/254 of the largest number
of 64, about 2.5 times a usual one; fp8 has three bits behind the first."""
LOSS_TOLERANCE: dict[Quantization, float] = {"int8": 0.05, "fp8": 0.15}
"""Of losses between 4.2 and 1.1, over fifty steps."""
ANOTHER_SIDE = 0.25
"""The share of what the narrow type changes in a gradient that roundings to another side may change. Two programs round
norms and sums differently in the last place: a value between two steps of the type then falls on another side, and
moves by a whole step. Weights that differ in the last place change up to 2 %. Scales that are wrong by 2 % change all
roundings, and more than the type does. Losses of fifty steps say nothing here: those weights change them by 1.5e-3, and
the unquantized model's by 5e-7."""
SIZES = {"B": 8, "S": 4, "D": 32, "N": 4, "K": 2, "H": 8, "F": 64}
EQUATIONS = (
    ("attention", "query", "BSD,DNH->BSNH"),
    ("attention", "key", "BSD,DKH->BSKH"),
    ("attention", "out", "BSNH,NHD->BSD"),
    ("mlp", "up", "BSD,DF->BSF"),
    ("mlp", "down", "BSF,FD->BSD"),
)
"""Products of a layer with its matrices."""
ROWS_DIVIDED, BOTH_DIVIDED = MeshShape(fsdp=4), MeshShape(fsdp=2, tensor=2)


def built(mesh: MeshShape) -> Mesh:
    return build_mesh(slices=1, devices=jax.devices()[: math.prod(mesh.sizes)], shape=mesh)


@pytest.mark.parametrize("kind", NEAR)
@pytest.mark.parametrize(
    ("equation", "sizes"), [("BSD,DNH->BSNH", (64, 4, 32)), ("BSNH,NHD->BSD", (4, 16, 48)), ("BSD,DF->BSF", (64, 96))]
)
def test_product_and_gradients_are_near(equation: str, sizes: tuple[int, ...], kind: Quantization) -> None:
    rng = np.random.default_rng(0)
    summed = len(equation.split(",")[0]) - 2
    x = rng.normal(size=(2, 16, *sizes[:summed])).astype(np.float32) * np.array([[[1e-3]], [[1e3]]]).reshape(
        2, *(1,) * (summed + 1)
    )
    weight = jnp.asarray(rng.normal(size=sizes), jnp.float32)
    pulled = jnp.asarray(rng.normal(size=jnp.einsum(equation, x, weight).shape), jnp.float32)

    @functools.partial(jax.jit, static_argnums=0)
    def found(kind: Quantization | None) -> tuple[jax.Array, ...]:
        value, backward = jax.vjp(lambda x, w: product(equation, x, w, kind), jnp.asarray(x, jnp.float32), weight)
        return value, *backward(pulled)

    for near, plain in zip(*(map(np.asarray, found(each)) for each in (kind, None)), strict=True):
        for row_near, row_plain in zip(near, plain, strict=True):
            assert np.linalg.norm(row_near - row_plain) <= NEAR[kind] * np.linalg.norm(row_plain)


def test_nothing_becomes_nothing() -> None:
    zeros = jnp.zeros((1, 2, 8))
    assert not jnp.any(product("BSD,DF->BSF", zeros, jnp.ones((8, 4)), "int8"))
    assert not jnp.any(product("BSD,DF->BSF", jnp.ones((1, 2, 8)), jnp.zeros((8, 4)), "fp8"))


@pytest.mark.parametrize(("kind", "mesh"), [("int8", BOTH_DIVIDED), ("fp8", MeshShape())], ids=["int8, divided", "fp8"])
def test_fifty_steps_learn_as_without(kind: Quantization, mesh: MeshShape) -> None:
    narrow = losses(dataclasses.replace(SHAPE, quantization=kind), mesh)
    np.testing.assert_allclose(narrow, LOSSES, atol=LOSS_TOLERANCE[kind], rtol=0)
    assert np.max(np.abs(np.subtract(narrow, LOSSES))) > TOLERANCE


@pytest.mark.parametrize(
    ("mesh", "makes_rings"),
    [(ROWS_DIVIDED, False), (BOTH_DIVIDED, False), (ROWS_DIVIDED, True)],
    ids=["gathered", "gathered, tensor 2", "rings"],
)
def test_product_with_a_matrix_that_travels_has_the_same_bits(mesh: MeshShape, makes_rings: bool) -> None:
    """Largest values, quotients and sums of integers are exact, whichever device has which part; see `_product`."""
    devices, alone = built(mesh), built(MeshShape())
    narrow, places = narrow_over(devices, makes_rings=makes_rings), Model(SHAPE, devices).shardings["layers"]
    rng = np.random.default_rng(0)
    for module, name, equation in EQUATIONS:
        arrays = [
            rng.normal(size=[SIZES[letter] for letter in letters]).astype(np.float32)
            for letters in re.split(",|->", equation)
        ]
        kept = NamedSharding(devices, PartitionSpec(*places[module][name].spec[1:]))
        travels = with_gradients(functools.partial(narrow, equation), arrays, kept)
        whole = with_gradients(functools.partial(product, equation), arrays, NamedSharding(alone, REPLICATED))
        for mine, other in zip(travels[:2], whole[:2], strict=True):
            np.testing.assert_array_equal(mine, other, err_msg=equation)
        # A sum of floating-point numbers over the tokens of all devices.
        np.testing.assert_allclose(travels[2], whole[2], rtol=1e-5, atol=1e-5, err_msg=equation)


def with_gradients(multiply: Callable[..., jax.Array], arrays: Any, place: NamedSharding) -> tuple[jax.Array, ...]:
    """The product of the first two arrays, and the gradients that the third one gives; the matrix lies at `place`."""

    def pull(x: jax.Array, weight: jax.Array, pulled: jax.Array) -> tuple[jax.Array, ...]:
        value, backward = jax.vjp(lambda x, w: multiply(x, w, "int8"), x, weight)
        return value, *backward(pulled)

    rows = NamedSharding(place.mesh, POSITIONS)
    return jax.jit(pull, in_shardings=(rows, place, rows))(*arrays)


@pytest.mark.parametrize(
    ("mesh", "remat", "makes_rings"),
    [(BOTH_DIVIDED, "full", False), (ROWS_DIVIDED, "full", True), (ROWS_DIVIDED, "none", False)],
    ids=["recomputed", "recomputed, rings", "kept"],
)
def test_matrices_that_travel_in_the_narrow_type_give_the_same_gradients(
    monkeypatch: pytest.MonkeyPatch, mesh: MeshShape, remat: Any, makes_rings: bool
) -> None:
    narrow = dataclasses.replace(SHAPE, remat=remat, quantization="int8")
    without, at_once = gradients(SHAPE, MeshShape()), gradients(narrow, mesh)
    monkeypatch.setattr(Model, "_gathers_at_once", False)
    monkeypatch.setattr(decoder, "narrow_rings", lambda *_: makes_rings)
    for path, by_travel, by_type in zip(
        jax.tree_util.tree_leaves_with_path(at_once),
        differences(gradients(narrow, mesh), at_once),
        differences(at_once, without),
        strict=True,
    ):
        assert by_travel <= ANOTHER_SIDE * by_type, jax.tree_util.keystr(path[0])


def gradients(shape: ModelShape, mesh: MeshShape) -> Any:
    """Of what the first weights make of a batch; on the host."""
    model, given = Model(shape, built(mesh)), batch(0)

    def total(weights: Any) -> jax.Array:
        return jnp.sum(jnp.sin(model.hidden(weights, given.inputs, given.positions, given.segment_ids)[0]))

    weights = jax.device_put(begun(SHAPE).weights, model.shardings)
    return jax.tree.map(np.asarray, jax.jit(jax.grad(total))(weights))


def differences(some: Any, others: Any) -> list[float]:
    """The norm of the difference of each array."""
    pairs = zip(jax.tree.leaves(some), jax.tree.leaves(others), strict=True)
    return [float(np.linalg.norm(np.ravel(a - b))) for a, b in pairs]


@pytest.mark.parametrize(
    ("generation", "kind", "makes_rings"),
    [
        pytest.param("v5e", "int8", True, id="a part is as wide as the chip needs"),
        pytest.param("v6e", "int8", False, id="a chip that computes faster than it reads so narrow parts"),
        pytest.param("v5e", None, False, id="no narrow type"),
        pytest.param("tpu7x", "fp8", False, id="no rings there"),
    ],
)
def test_rings_of_narrow_products(
    monkeypatch: pytest.MonkeyPatch, generation: str, kind: Quantization | None, makes_rings: bool
) -> None:
    monkeypatch.setitem(BY_KIND, jax.devices()[0].device_kind, CHIPS[generation])
    shape = dataclasses.replace(SHAPE, embed_dim=8 * 256, quantization=kind)
    assert narrow_rings(build_mesh(slices=1), shape) == makes_rings
    assert not narrow_rings(build_mesh(slices=1, shape=MeshShape(fsdp=4, tensor=2)), shape)


def test_matrices_travel_in_the_narrow_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward, recomputed, and for the gradient of what they are multiplied by; gradients of matrices are wide."""
    monkeypatch.setattr(Model, "_gathers_at_once", False)
    mesh = built(ROWS_DIVIDED)
    model = Model(dataclasses.replace(SHAPE, quantization="int8"), mesh)
    inputs = [jax.ShapeDtypeStruct((8, 16), jnp.int32, sharding=NamedSharding(mesh, POSITIONS))] * 3
    weights = jax.tree.map(
        lambda leaf, lies: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=lies),
        model.abstract_weights,
        model.shardings,
    )
    step = jax.grad(lambda weights, inputs: jnp.sum(model.hidden(weights, *inputs)[0]))
    text = jax.jit(step).lower(weights, inputs).compile().as_text()
    in_loops = re.findall(r"= (\w+)\[([\d,]*)\]\S* all-gather\(.*while/body", text)
    # Seven matrices; nothing needs what `down` makes when it is recomputed.
    assert [kind for kind, _ in in_loops].count("s8") == 3 * 7 - 1
    scales = {size for kind, size in in_loops if kind != "s8"}
    assert all(math.prod(map(int, size.split(","))) <= SHAPE.mlp_dim for size in scales)


@pytest.mark.parametrize(
    ("kind", "device_kind", "instead"),
    [("int8", "TPU v4", "leave it out"), ("fp8", "TPU v6 lite", "choose int8"), ("int8", "TPU7x", "choose fp8")],
)
def test_type_that_is_no_faster_is_refused(kind: Quantization, device_kind: str, instead: str) -> None:
    with pytest.raises(ConfigurationError, match=f"quantization: {kind} is no faster than bfloat16 on .*{instead}"):
        require_faster(kind, device_kind)
    for faster in BY_KIND[device_kind].narrow_rates:
        require_faster(faster, device_kind)  # type: ignore[arg-type]
    require_faster(kind, "cpu")


def test_mixtures_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^quantization: int8 .* 8 experts"):
        ModelConfig(preset="mixtral-8x7b", quantization="int8")
