"""libtpu compiles for topologies that are only described. `make tpu-compiler` installs it; no TPU is needed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tpujob_trainer.compile.chips import CHIPS, GIB
from tpujob_trainer.compile.program import needed_bytes
from tpujob_trainer.compile.subprocess import compile_apart

SMALLEST = {"v4": "2x2x1", "v5e": "2x2", "v5p": "2x2x1", "v6e": "2x2", "tpu7x": "2x2x1"}
TOO_LARGE = """
import sys, jax, jax.numpy as jnp
from jax.sharding import SingleDeviceSharding
from tpujob_trainer.compile.program import prepare_environment, topology_devices
prepare_environment()
device = topology_devices(sys.argv[1], tuple(map(int, sys.argv[2].split("x"))))[0]
large = jax.ShapeDtypeStruct((300, 2**30), jnp.bfloat16, sharding=SingleDeviceSharding(device))
try:
    jax.jit(lambda x: x * 2).lower(large).compile()
except jax.errors.JaxRuntimeError as error:
    print(error)
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


@pytest.mark.tpu_compiler
def test_step_is_compiled_for_a_slice() -> None:
    found = compile_apart(TINY, generation="v5e", shape=(4, 4), vocabulary=256)
    assert (found["devices"], found["fits"]) == (16, True)
    assert 0 < found["argument_bytes"] < found["peak_bytes"] < found["hbm_limit_bytes"]
    assert found["step_flops"] > 0


@pytest.mark.tpu_compiler
def test_step_that_does_not_fit_says_by_how_much() -> None:
    block = {**TINY, "model": {"preset": "llama2-7b"}, "data": {**TINY["data"], "tokenizer": "t.json"}}
    found = compile_apart({**block, "batchSize": 4}, generation="v5e", shape=(2, 2))
    assert found["fits"] is False
    assert found["peak_bytes"] > found["hbm_limit_bytes"]
