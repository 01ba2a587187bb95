"""Checks that transformers and the trainer compute the same from an exported folder.

    python -m tpujob_trainer.model.weights.verified_export DIRECTORY [PYTHON [KEY …]]

Writes one JSON object to stdout; `tpujob checkpoint verify-export` starts it. PYTHON has transformers and torch; it is
this Python by default. KEYs of config.json that the trainer does not know are ignored. Both compute in float32 on one
CPU device, one after the other, so memory must hold the weights.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tpujob_trainer.model.decoder import Model, soft_capped
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.model.weights.load import load_weights
from tpujob_trainer.model.weights.read_shape import read_shape
from tpujob_trainer.values import programs
from tpujob_trainer.values.errors import NotFoundError, TrainerError
from tpujob_trainer.values.programs import answer, log_to_stderr

TOLERANCE = 1e-3
"""Largest difference of float32 logits, which are between 1 and 30."""
TOKENS = 32
"""Of a text that is compared whole, and at the end of a longer one."""
MOST_TOKENS = 4096 + TOKENS
"""A window, or a length from which frequencies change, that needs more is not reached."""
_PEER = r"""
import json, sys
import torch, transformers
transformers.logging.set_verbosity_error()
folder, texts, last = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
kinds = (transformers.AutoModelForCausalLM, transformers.AutoModelForImageTextToText)
kind = next((kind for kind in kinds if type(config) in kind._model_mapping), kinds[0])
model = kind.from_pretrained(
    folder, attn_implementation="eager", torch_dtype=torch.float32, local_files_only=True
).eval()
with torch.no_grad():
    logits = [
        model(torch.tensor([ids]), use_cache=False, logits_to_keep=last).logits[0].tolist() for ids in texts
    ]
found = {"version": transformers.__version__, "model": type(model).__name__, "logits": logits}
sys.stdout.write(json.dumps(found) + "\n")
"""


def verify_export(directory: str, python: str, ignored: tuple[str, ...] = ()) -> dict[str, Any]:
    """Compares the logits of transformers with ours, for texts of ids from all of the vocabulary.

    The second text is longer than the window and the length from which rotary frequencies change, if there are any.

    Args:
        directory: the local folder.
        python: a Python with transformers and torch.
        ignored: unknown keys of config.json to ignore.

    Raises:
        TrainerError: the trainer or transformers cannot read the folder, or that Python has no transformers.
    """
    shape = read_shape(directory, remat="none", compute_dtype="float32", ignored=ignored)
    texts = [[1 + (7919 * place) % (shape.vocab_size - 1) for place in range(length)] for length in text_lengths(shape)]
    peer = _transformers(directory, texts, python)
    pairs = zip(_logits(directory, shape, texts), peer.pop("logits"), strict=True)
    difference = max(float(np.abs(ours - np.array(theirs)).max()) for ours, theirs in pairs)
    is_equal = difference <= TOLERANCE
    return {"directory": directory, **peer, "ids": texts[-1], "difference": difference, "equal": is_equal}


def text_lengths(shape: ModelShape) -> list[int]:
    """Of the texts to compare: a second one reaches what changes with the length, if that is within `MOST_TOKENS`."""
    scaling = shape.rope_scaling
    reached = [shape.window] if shape.window else []
    if scaling is not None and scaling.way in ("longrope", "dynamic"):
        reached.append(scaling.original_length)
    longest = max((length + TOKENS for length in reached if length + TOKENS <= MOST_TOKENS), default=TOKENS)
    return sorted({TOKENS, longest})


def _logits(directory: str, shape: ModelShape, texts: list[list[int]]) -> Iterator[np.ndarray]:
    """Of the last tokens of each text."""
    model = Model(shape, build_mesh(slices=1, devices=jax.devices()[:1]))
    weights = load_weights(directory, shape, model.abstract_weights, model.shardings)
    compute = jax.jit(model.hidden)
    for ids in texts:
        tokens = jnp.asarray([ids])
        hidden, output = compute(weights, tokens, jnp.arange(len(ids))[None], jnp.ones_like(tokens))
        yield np.asarray(soft_capped(hidden[0, -TOKENS:] @ output, shape.logit_softcap))


def _transformers(directory: str, texts: list[list[int]], python: str) -> dict[str, Any]:
    command = [python, "-c", _PEER, directory, json.dumps(texts), str(TOKENS)]
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
    directory, *rest = sys.argv[1:]
    python, *ignored = rest or [""]
    return answer(lambda: verify_export(directory, python or sys.executable, tuple(ignored)))


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    programs.end(main())
