"""A run that does not fit its devices says so, and is not tried again; one that fitted before is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tpujob_contract import ExitCode
from tpujob_trainer.values import device_memory

OF_DEVICES = {
    "libtpu's compiler": (
        "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO "
        "temporaries (16.78G) exceeds available HBM (15.75G). HLO module: jit_f.\nSee "
        "https://openxla.org/xla/errors/error_1000 for more details."
    ),
    "libtpu's compiler, before": (
        "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 20.31G of "
        "15.75G hbm. Exceeded hbm capacity by 4.56G."
    ),
    "a TPU, for an array": (
        "RESOURCE_EXHAUSTED: E0100: RuntimeBufferAllocationFailure: Error allocating device buffer: Attempting to "
        "allocate 8.00M. That was not possible. There are 6.43M free.; (0x0x0_HBM0)"
    ),
    "a TPU, for a program": (
        "RESOURCE_EXHAUSTED: E0101: RuntimeProgramAllocationFailure: Error loading program 'jit_step': Attempting to "
        "reserve 29.49G at the bottom of memory. That was not possible. There are 147.64M free."
    ),
    "CUDA": (
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 60.00GiB with allocator GPU_0_bfc on device 0. "
        "[executable_name='jit_make'] [tf-allocator-allocation-error='']"
    ),
    "a CPU": "RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes.",
}
OF_OTHERS = {
    "storage's quota": (
        "RESOURCE_EXHAUSTED: Quota exceeded for quota metric 'Read requests' and limit 'Read requests per minute'. "
        "[source locations='tensorstore/kvstore/gcs/gcs_key_value_store.cc:812']"
    ),
    "a peer": "UNAVAILABLE: connection closed by peer; it ran out of memory",
}
PROGRAM = """
import resource, sys
import jax
jax.devices()
import tpujob_trainer.main
with open("/proc/self/status") as status:
    used = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, (used + 3 * 2**30,) * 2)
tpujob_trainer.main.main()
"""
"""A trainer with 3 GB of addresses beyond those of its libraries, as a device with so much memory."""


@pytest.mark.parametrize("text", OF_DEVICES.values(), ids=OF_DEVICES.keys())
def test_words_of_devices_are_known(text: str) -> None:
    """Whoever says so."""
    assert device_memory.is_exhausted(jax.errors.JaxRuntimeError(text))


@pytest.mark.parametrize("text", OF_OTHERS.values(), ids=OF_OTHERS.keys())
def test_words_of_others_are_not_taken_for_theirs(text: str) -> None:
    """A quota is waited for."""
    assert not device_memory.is_exhausted(jax.errors.JaxRuntimeError(text))


@pytest.mark.parametrize(("has_fitted", "code"), [(False, ExitCode.CONFIGURATION), (True, 1)])
def test_run_that_took_steps_is_tried_again(has_fitted: bool, code: int) -> None:
    """What fitted once may fit again."""
    ending = device_memory.ending(jax.errors.JaxRuntimeError(OF_DEVICES["CUDA"]), has_fitted=has_fitted)
    assert ending.exit_code == code
    assert "allocate 60.00GiB" in str(ending)
    assert "check --compile" in str(ending)


def test_step_that_does_not_fit_ends_at_once(tmp_path: Path) -> None:
    """A real trainer, whose activations take three times what there is."""
    pq.write_table(pa.table({"text": ["tick tock " * 2000] * 16}), tmp_path / "text.parquet")
    config = {
        "model": {"layers": 16, "embedDim": 256, "mlpDim": 2048, "heads": 4, "remat": "none"},
        "data": {"path": str(tmp_path / "text.parquet")},
        "sequenceLength": 256,
        "batchSize": 64,
        "steps": 2,
    }
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "JAX_PLATFORMS": "cpu",
        "TPUJOB_CONFIG": json.dumps(config),
        "TPUJOB_REPORT_PORT": "0",
        "TPUJOB_TERMINATION_LOG": str(tmp_path / "termination"),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == ExitCode.CONFIGURATION, done.stderr[-3000:]
    message = (tmp_path / "termination").read_text()
    assert "the devices have not enough memory" in message
    assert "Out of memory allocating" in message
