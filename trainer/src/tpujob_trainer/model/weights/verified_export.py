"""Checks that transformers and the trainer compute the same from an exported folder.

    python -m tpujob_trainer.model.weights.verified_export DIRECTORY [PYTHON]

Writes one JSON object to stdout; `tpujob checkpoint verify-export` starts it. PYTHON has transformers and torch; it is
this Python by default. Both compute in float32 on one CPU device, one after the other, so memory must hold the weights.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tpujob_trainer.distributed.exit import programs
from tpujob_trainer.errors import NotFoundError, TrainerError
from tpujob_trainer.errors.answers import answer
from tpujob_trainer.errors.logs import log_to_stderr
from tpujob_trainer.model.decoder import Model, soft_capped
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.weights.load import load_weights, read_shape

TOLERANCE = 1e-3
"""Largest difference of float32 logits, which are between 1 and 30."""
TOKENS = 32
_PEER = r"""
import json, sys
import torch, transformers
transformers.logging.set_verbosity_error()
folder, ids = sys.argv[1], json.loads(sys.argv[2])
model = transformers.AutoModelForCausalLM.from_pretrained(
    folder, attn_implementation="eager", torch_dtype=torch.float32, local_files_only=True
).eval()
with torch.no_grad():
    logits = model(torch.tensor([ids]), use_cache=False).logits[0]
found = {"version": transformers.__version__, "model": type(model).__name__, "logits": logits.tolist()}
sys.stdout.write(json.dumps(found) + "\n")
"""


def verify_export(directory: str, python: str) -> dict[str, Any]:
    """Compares the logits of transformers with ours, for a text of ids from all of the vocabulary.

    Args:
        directory: the local folder.
        python: a Python with transformers and torch.

    Raises:
        TrainerError: the trainer or transformers cannot read the folder, or that Python has no transformers.
    """
    shape = read_shape(directory, remat="none", compute_dtype="float32")
    ids = [1 + (7919 * place) % (shape.vocab_size - 1) for place in range(TOKENS)]
    peer = _transformers(directory, ids, python)
    difference = float(np.abs(_logits(directory, ids) - np.array(peer.pop("logits"))).max())
    return {"directory": directory, **peer, "ids": ids, "difference": difference, "equal": difference <= TOLERANCE}


def _logits(directory: str, ids: list[int]) -> np.ndarray:
    shape = read_shape(directory, remat="none", compute_dtype="float32")
    model = Model(shape, build_mesh(slices=1, devices=jax.devices()[:1]))
    weights = load_weights(directory, shape, model.abstract_weights, model.shardings)
    tokens = jnp.asarray([ids])
    hidden, output = jax.jit(model.hidden)(weights, tokens, jnp.arange(len(ids))[None], jnp.ones_like(tokens))
    return np.asarray(soft_capped(hidden[0] @ output, shape.logit_softcap))


def _transformers(directory: str, ids: list[int], python: str) -> dict[str, Any]:
    command = [python, "-c", _PEER, directory, json.dumps(ids)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NotFoundError(
            f"--python: {python}: {error.strerror}; name a Python with transformers and torch"
        ) from error
    if done.returncode:
        line = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        if "ModuleNotFoundError" in line:
            raise NotFoundError(
                f"--python: {python}: {line.partition(': ')[2]}; install transformers and torch there, or name another"
            )
        raise TrainerError(f"DIRECTORY: transformers does not load {directory}: {line}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Verifies the export that the arguments name, and returns the exit code."""
    log_to_stderr(logging.ERROR)
    directory, *python = sys.argv[1:]
    return answer(lambda: verify_export(directory, python[0] if python else sys.executable))


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    programs.end(main())
