"""The weights of `model.custom` as safetensors, by the paths of its parameters, written by all processes.

`model.json` beside them describes how to create the module: reference, arguments, vocabulary and step.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx

from tpujob_trainer.model.weights.export import collector
from tpujob_trainer.model.weights.shards import Agree, StoredTensor, alone, write_folder

DESCRIPTION = "model.json"
_NO_STACK = np.zeros(0, dtype=np.int32)


def export_custom_weights(
    path: str,
    weights: Any,
    model: Mapping[str, Any],
    step: int,
    *,
    dtype: str = "BF16",
    agree: Agree = alone,
) -> None:
    """Writes weights under the paths of their parameters, as in `layers.0.kernel`. All processes must call it.

    Args:
        path: the folder; local, or a URL. Files in it of the same names are overwritten.
        weights: nested by the names of modules, with any sharding.
        model: arguments that the module is created with, by the keys of the configuration or of the shape.
        step: of the weights.
        dtype: of the stored weights: F32, BF16 or F16.
        agree: waits for all processes.

    Raises:
        OSError: the folder cannot be written to; with several processes, what `agree` raises.
    """
    leaves = {".".join(map(str, parts)): leaf for parts, leaf in nnx.traversals.flatten_mapping(weights).items()}
    vocabulary = model.get("vocabSize", model.get("vocab_size"))
    made = {"custom": model["custom"], "arguments": model["arguments"], "vocabSize": vocabulary, "step": step}

    def collect(tensors: list[StoredTensor], writes: bool) -> Iterator[np.ndarray]:
        for tensor in tensors:
            leaf: jax.Array = leaves[tensor.name]
            letters = string.ascii_lowercase[: leaf.ndim]
            whole = collector(letters, " ".join(letters), dtype, leaf.sharding.mesh)
            yield np.asarray(whole(leaf, _NO_STACK).addressable_data(0))

    write_folder(
        path,
        [StoredTensor(name, leaf.shape, dtype) for name, leaf in leaves.items()],
        collect,
        {DESCRIPTION: (json.dumps(made, indent=2) + "\n").encode()},
        agree=agree,
    )
