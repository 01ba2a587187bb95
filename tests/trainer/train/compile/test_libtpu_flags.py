"""The libtpu of the trainer's image takes every recommended set of flags. `make tpu-compiler` installs it."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tpujob_resource.topology.libtpu_flags import ENVIRONMENT_VARIABLE, by_generation, merge_flags, recommended_flags

SHAPES = {"v4": "2x2x2", "v5e": "4x4", "v5p": "2x2x2", "v6e": "4x4", "tpu7x": "2x2x2"}
TINY: dict[str, Any] = {
    "model": {"preset": "tiny"},
    "data": {"path": "data/*.parquet"},
    "steps": 10,
    "batchSize": 32,
    "sequenceLength": 256,
}


def _compile(generation: str, flags: str, slices: int = 1) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tpujob_trainer.train.compile", generation, SHAPES[generation]]
    return subprocess.run(
        [*command, "--slices", str(slices), "--vocabulary", "256"],
        input=json.dumps(TINY),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu", ENVIRONMENT_VARIABLE: flags},
    )


@pytest.mark.tpu_compiler
@pytest.mark.parametrize("slices", [1, 2])
@pytest.mark.parametrize("generation", by_generation())
def test_compiler_takes_the_recommended_flags(generation: str, slices: int) -> None:
    done = _compile(generation, merge_flags(recommended_flags(generation, slices), ""), slices)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["fits"]


@pytest.mark.tpu_compiler
def test_compiler_refuses_a_flag_that_it_does_not_know() -> None:
    """Otherwise the test above could not fail."""
    assert _compile("v5e", "--xla_no_such_flag=true").returncode != 0
