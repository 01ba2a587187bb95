"""libtpu compiles for topologies that are only described. `make tpu-compiler` installs it; no TPU is needed."""

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.trainer.train.compile.compile_apart import compile_apart
from tpujob_trainer.model.chips import CHIPS, GIB
from tpujob_trainer.train.compile.program import needed_bytes, wraps

SMALLEST = {"v4": "2x2x1", "v5e": "2x2", "v5p": "2x2x1", "v6e": "2x2", "tpu7x": "2x2x1"}
TOO_LARGE = """
import sys, jax, jax.numpy as jnp
from jax.sharding import SingleDeviceSharding
from tpujob_trainer.train.compile.program import prepare_environment, topology_devices
prepare_environment()
device = topology_devices(sys.argv[1], tuple(map(int, sys.argv[2].split("x"))))[0]
large = jax.ShapeDtypeStruct((300, 2**30), jnp.bfloat16, sharding=SingleDeviceSharding(device))
try:
    jax.jit(lambda x: x * 2).lower(large).compile()
except jax.errors.JaxRuntimeError as error:
    print(error)
"""
GATHER = """
import re, sys, jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.train.compile.program import prepare_environment, topology_devices
prepare_environment()
mesh = build_mesh(slices=1, devices=topology_devices(sys.argv[1], tuple(map(int, sys.argv[2].split("x")))))
divided = NamedSharding(mesh, PartitionSpec("fsdp"))
rows = jax.ShapeDtypeStruct((mesh.size * 8, mesh.size * 64), jnp.bfloat16, sharding=divided)
weight = jax.ShapeDtypeStruct((mesh.size * 64, 512), jnp.bfloat16, sharding=divided)
text = jax.jit(lambda x, w: x @ w, out_shardings=divided).lower(rows, weight).compile().as_text()
print(*sorted(set(re.findall(r" (all-[a-z]+|reduce-scatter|collective-permute)(?:-start)?[(]", text))))
"""
PRODUCTS = """
import json, re, sys
from tpujob_trainer.train.compile.program import lower_step, prepare_environment
from tpujob_trainer.config.schema import parse_config
prepare_environment()
shape = tuple(map(int, sys.argv[2].split("x")))
*_, step = lower_step(parse_config(json.loads(sys.argv[3])), generation=sys.argv[1], shape=shape)
text = step.compile().as_text()
types = dict(re.findall(r"%?([^ %]+) = ([a-z0-9]+)[[]", text))
for left, right in re.findall(r" (?:convolution|dot)[(]%?([^ ,]+), %?([^ ,)]+)[)]", text):
    print(types.get(left), types.get(right), sep="/")
"""
TINY: dict[str, Any] = {
    "model": {"preset": "tiny"},
    "data": {"path": "data/*.parquet"},
    "steps": 10,
    "batchSize": 16,
    "sequenceLength": 256,
}


@pytest.mark.parametrize(
    ("message", "gibibytes"),
    [
        ("Ran out of memory in memory space hbm. Used 24.00G of 15.75G hbm. Exceeded hbm capacity by 8.25G.", 24.0),
        ("the total memory required for HLO temporaries (1.50T) exceeds available HBM (15.75G).", 1536.0),
        ("Mosaic failed to compile TPU kernel", None),
    ],
    ids=["all of it", "temporaries alone", "another error"],
)
def test_error_says_how_much_is_needed(message: str, gibibytes: float | None) -> None:
    assert needed_bytes(message) == (None if gibibytes is None else gibibytes * GIB)


@pytest.mark.tpu_compiler
@pytest.mark.parametrize("generation", CHIPS)
def test_memory_is_what_the_compiler_leaves(generation: str) -> None:
    command = [sys.executable, "-c", TOO_LARGE, generation, SMALLEST[generation]]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "JAX_PLATFORMS": "cpu"}
    )
    available = re.search(r"exceeds available HBM \(([\d.]+)G\)", done.stdout)
    assert available, done.stdout + done.stderr
    assert CHIPS[generation].hbm_bytes == float(available[1]) * GIB


@pytest.mark.parametrize(
    ("shape", "wrapped"),
    [
        ((4, 4), (False, False, False)),
        ((8, 16), (False, True, False)),
        ((16, 16), (True, True, False)),
        ((2, 2, 1), (False, False, False)),
        ((2, 4, 4), (False, False, False)),
        ((4, 4, 4), (True, True, True)),
        ((4, 8, 12), (True, True, True)),
    ],
    ids=lambda each: "x".join(map(str, each)),
)
def test_links_close_a_ring_along_16_chips_or_cubes(shape: tuple[int, ...], wrapped: tuple[bool, ...]) -> None:
    """The same for each of 223 slices in MaxText's table (AI-Hypercomputer/maxtext, accelerator_to_spec_map.py)."""
    assert wraps(shape) == wrapped


@pytest.mark.tpu_compiler
@pytest.mark.parametrize("shape", ["2x4x4", "4x4x4", "4x4x8"])
def test_weights_are_gathered_and_not_summed(shape: str) -> None:
    """64 columns of each device; without a cube's rings libtpu sums padded wholes."""
    done = subprocess.run(
        [sys.executable, "-c", GATHER, "v5p", shape],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert done.stdout.split() == ["all-gather"]


@pytest.mark.tpu_compiler
def test_step_is_compiled_for_a_slice() -> None:
    found = compile_apart(TINY, generation="v5e", shape=(4, 4), vocabulary=256)
    assert (found["devices"], found["fits"]) == (16, True)
    assert 0 < found["argument_bytes"] < found["peak_bytes"] < found["hbm_limit_bytes"]
    assert found["step_flops"] > 0


@pytest.mark.tpu_compiler
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("generation", "kind", "operand"), [("v5e", "int8", "s8"), ("v6e", "int8", "s8"), ("tpu7x", "fp8", "f8e4m3fn")]
)
def test_products_of_layers_are_narrow(generation: str, kind: str, operand: str) -> None:
    model = {"layers": 2, "embedDim": 1024, "heads": 8, "mlpDim": 2816, "vocabSize": 256, "quantization": kind}
    done = subprocess.run(
        [sys.executable, "-c", PRODUCTS, generation, SMALLEST[generation], json.dumps({**TINY, "model": model})],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    found = done.stdout.split()
    # Seven matrices of a layer, in the forward pass, again in the backward pass, and the gradients of their inputs.
    assert found.count(f"{operand}/{operand}") >= 7 * 3 - 1, found


@pytest.mark.tpu_compiler
@pytest.mark.timeout(1800)
def test_offloaded_input_of_layers_is_in_host_memory() -> None:
    # Buffers of the transfers cost a narrow model more than its inputs do: 1024 wide, the peak rises.
    dimensions = {"preset": "llama2-7b", "layers": 4}
    data = {**TINY["data"], "tokenizer": "t.json"}
    block = {**TINY, "data": data, "model": dimensions, "batchSize": 64, "sequenceLength": 2048}
    place: dict[str, Any] = {"generation": "v5e", "shape": (4, 4)}
    kept = compile_apart(block, **place)
    offloaded = compile_apart({**block, "model": {**dimensions, "rematOffload": ["input"]}}, **place)
    of_inputs = 4 * (64 // 16) * 2048 * 4096 * 2  # layers, rows of a device, positions, width, bfloat16
    assert (kept["host_bytes"], offloaded["host_bytes"]) == (0, of_inputs)
    assert offloaded["peak_bytes"] < kept["peak_bytes"] - of_inputs / 2


@pytest.mark.tpu_compiler
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("generation", "shape", "slices"),
    [("v5e", (4, 4), 1), ("v5p", (2, 2, 4), 1), ("v6e", (4, 4), 1), ("v5e", (4, 4), 2)],
)
def test_gradients_of_layers_travel_beside_arithmetic(generation: str, shape: tuple[int, ...], slices: int) -> None:
    model = {"preset": "llama2-7b", "layers": 2}
    block = {**TINY, "model": model, "data": {**TINY["data"], "tokenizer": "t.json"}, "sequenceLength": 2048}
    found = compile_apart({**block, "batchSize": 64 * slices}, generation=generation, shape=shape, slices=slices)
    in_loop = [each for each in found["exchanges"] if each["is_in_loop"]]
    waiting = [each for each in in_loop if each["kind"] in {"all-reduce", "reduce-scatter"}]
    assert [each for each in waiting if not each["is_asynchronous"] and each["bytes"] > 2**20 * each["count"]] == []
    between = [each for each in in_loop if each["is_between_slices"]]
    assert bool(between) == (slices > 1)
    assert all(each["is_asynchronous"] for each in between)


@pytest.mark.tpu_compiler
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("mlp_dim", "mesh", "is_waited_for"),
    [
        pytest.param(4096, {}, False, id="rings"),
        pytest.param(2048, {}, True, id="parts too narrow for rings"),
        pytest.param(4096, {"fsdp": 8, "tensor": 2}, True, id="another axis, no rings"),
    ],
)
def test_matrices_of_feed_forward_blocks_wait_without_rings_alone(
    mlp_dim: int, mesh: dict[str, int], is_waited_for: bool
) -> None:
    """They travel while they are multiplied, where `rings.py` says so."""
    layers, width = 2, 1024
    model = {"layers": layers, "embedDim": width, "heads": 2, "headDim": 128, "mlpDim": mlp_dim, "vocabSize": 256}
    block = {**TINY, "model": model, "mesh": mesh, "sequenceLength": 512}
    found = compile_apart(block, generation="v5p", shape=(2, 2, 4), vocabulary=256)
    gathers = [each for each in found["exchanges"] if each["is_in_loop"] and each["kind"] == "all-gather"]
    waiting = sum(each["bytes"] for each in gathers if not each["is_asynchronous"])
    matrix = width * mlp_dim * 2 // mesh.get("tensor", 1)
    if is_waited_for:
        assert waiting > layers * 2 * 3 * matrix  # three, forward and again backward; attention's come on top
    else:
        assert waiting < layers * matrix  # attention's alone


@pytest.mark.tpu_compiler
@pytest.mark.timeout(1200)
def test_no_padding_travels_between_slices() -> None:
    """Each of 64 chips keeps 64 columns of `down`, which as the last dimension would be sent as 128."""
    layers, width, mlp_dim, words = 2, 4096, 1024, 1024
    model = {"layers": layers, "embedDim": width, "heads": 2, "headDim": 128, "mlpDim": mlp_dim, "vocabSize": words}
    block = {**TINY, "model": model, "batchSize": 128, "sequenceLength": 1024}
    found = compile_apart(block, generation="v5e", shape=(8, 8), slices=2, vocabulary=words)
    sent = sum(each["sent_bytes"] for each in found["exchanges"] if each["is_between_slices"])
    of_layer = 4 * 2 * 128 + 3 * mlp_dim  # columns of its matrices: attention's, and the block's
    matrices = width * (layers * of_layer + 2 * words) * 2 // 64  # bfloat16, one part of 64
    assert matrices < sent < matrices + 2**17  # and norms in float32, each on every chip


@pytest.mark.tpu_compiler
def test_step_that_does_not_fit_says_by_how_much() -> None:
    block = {**TINY, "model": {"preset": "llama2-7b"}, "data": {**TINY["data"], "tokenizer": "t.json"}}
    found = compile_apart({**block, "batchSize": 4}, generation="v5e", shape=(2, 2))
    assert found["fits"] is False
    assert found["peak_bytes"] > found["hbm_limit_bytes"]
