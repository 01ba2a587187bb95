"""A checkpoint is verified and exported without its run; the one here was saved by two processes of four devices."""

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from tpujob_trainer.model.families.base import RopeScaling
from tpujob_trainer.model.weights.read_shape import read_shape
from tpujob_trainer.tasks.stored_checkpoint import _read, export, shape_from, verify
from tpujob_trainer.values.errors import NotFoundError

SAVED = Path(__file__).parents[2] / "scenes" / "multiprocess" / "golden_checkpoint" / "checkpoints.tar.xz"
SHAPE = {"layers": 2, "embedDim": 8, "heads": 2, "kvHeads": 1, "headDim": 4, "mlpDim": 16, "vocabSize": 32}


@pytest.fixture
def directory(tmp_path: Path) -> str:
    with tarfile.open(SAVED) as archive:
        archive.extractall(tmp_path, filter="data")
    return str(tmp_path / "checkpoints")


def test_an_untouched_checkpoint_is_as_it_was_saved(directory: str) -> None:
    found = verify(directory, None)
    assert found["problems"] == {25: []}
    with pytest.raises(NotFoundError, match="7 is not a committed checkpoint"):
        verify(directory, 7)


def test_a_changed_fingerprint_is_found(directory: str) -> None:
    file = Path(directory) / "steps" / "25" / "fingerprints" / "metadata"
    whole = json.loads(file.read_text())
    (leaves,) = (value for value in whole.values() if isinstance(value, dict))
    name = sorted(leaves)[0]
    leaves[name] = leaves[name][:-1] + ("0" if leaves[name][-1] != "0" else "1")
    file.write_text(json.dumps(whole))
    assert verify(directory, 25)["problems"] == {25: [f"{name}: the fingerprint is not that of what was saved"]}


def test_a_renamed_copy_of_a_step_is_found(directory: str) -> None:
    steps = Path(directory) / "steps"
    shutil.copytree(steps / "25", steps / "99999")
    assert verify(directory, None)["problems"] == {99999: ["it holds step 25: the folder was renamed"], 25: []}


@pytest.mark.processes
def test_a_lost_file_is_found(directory: str) -> None:
    for array in Path(directory).glob("steps/25/**/d/*"):
        array.unlink()
    # A process of its own: what Orbax leaves behind then warns when Python ends.
    done = subprocess.run(
        [sys.executable, "-m", "tpujob_trainer.tasks.stored_checkpoint", "verify", directory, "25"],
        capture_output=True,
        text=True,
        check=True,
    )
    (problem,) = json.loads(done.stdout.splitlines()[-1])["problems"]["25"]
    assert problem.startswith("cannot be read: ")


def test_the_weights_are_exported_as_they_are(directory: str, tmp_path: Path) -> None:
    out = tmp_path / "model"
    found = export(directory, None, str(out), dtype="F32")
    assert (found["step"], found["out"]) == (25, str(out))
    shape = read_shape(str(out), remat="none", compute_dtype="float32")
    assert (shape.layers, shape.embed_dim, shape.heads) == (2, 16, 2)
    weights = _read(directory, 25, only="weights")["weights"]
    exported = load_file(out / "model.safetensors")
    np.testing.assert_array_equal(exported["model.embed_tokens.weight"], weights["embedding"])
    assert sum(array.size for array in exported.values()) == sum(leaf.size for leaf in jax.tree.leaves(weights))


def test_a_shape_is_read_from_what_is_stored() -> None:
    stored = SHAPE | {"ropeScaling": {"factor": 8.0, "lowFreqFactor": 2.0}, "ofTomorrow": 1}
    shape = shape_from(stored)
    assert (shape.kv_heads, shape.vocab_size) == (1, 32)
    assert shape.rope_scaling == RopeScaling(factor=8.0, low_freq_factor=2.0)
