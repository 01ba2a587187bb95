"""Memory of weights and optimizer state on a device, by arithmetic only: without JAX.

Weights and their optimizer state are float32. Vectors count as divided, although they are replicated, and Adafactor's
sums of rows and columns do not count.
"""

from __future__ import annotations

from tpujob_trainer.config.resolve import ResolvedConfig
from tpujob_trainer.config.schema import OptimizerConfig
from tpujob_trainer.model.lora_config import OF_MLP, LoraConfig
from tpujob_trainer.model.mesh.shape import MeshShape
from tpujob_trainer.model.shape import ModelShape

FLOAT_BYTES = 4
_MOMENTS = {"adamw": 2, "lion": 1, "muon": 1, "adafactor": 0}
"""Numbers in the optimizer state for each weight of a layer's matrices."""


def state_bytes_per_device(run: ResolvedConfig) -> float:
    """Bytes of weights and optimizer state. A custom optimizer is assumed to keep two numbers for each weight."""
    vocabulary = run.model.vocabulary_parameters / _vocabulary_parts(run.mesh)
    others = (run.model.num_parameters - run.model.vocabulary_parameters) / _parts(run.mesh)
    if run.lora is not None:
        adapters = adapter_parameters(run.model, run.lora, expert=run.mesh.expert) * (1 + _moments(run.optimizer))
        return FLOAT_BYTES * (vocabulary + others + adapters)
    copies = 1 + _moments(run.optimizer) + (run.optimizer.ema_decay is not None)
    # Muon leaves the embedding and the output matrix to AdamW.
    is_muon = run.optimizer.custom is None and run.optimizer.name == "muon"
    return FLOAT_BYTES * (copies * others + (copies + is_muon) * vocabulary)


def adapter_parameters(shape: ModelShape, lora: LoraConfig, *, expert: int) -> int:
    """Parameters of the adapters on a device: all of them, except those of experts on other devices.

    Args:
        shape: Of the model.
        lora: The adapters.
        expert: Number of devices over which experts are divided.
    """
    heads, key_heads = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    widths = {"query": heads, "key": key_heads, "value": key_heads, "out": shape.heads * shape.value_dim}
    narrow = {"query": shape.latent.query_rank} if shape.latent and shape.latent.query_rank else {}
    each = dict.fromkeys(OF_MLP, shape.experts // expert if shape.experts else 1)
    sides = [
        each.get(target, 1) * (narrow.get(target, shape.embed_dim) + widths.get(target, shape.mlp_dim))
        for target in lora.targets
    ]
    return shape.layers * lora.rank * sum(sides)


def _moments(optimizer: OptimizerConfig) -> int:
    return 2 if optimizer.custom is not None else _MOMENTS[optimizer.name]


def _vocabulary_parts(mesh: MeshShape) -> int:
    """Devices over which embedding and output are divided: `partitioning.WEIGHT_AXES`; slices and `data` replicate."""
    return mesh.fsdp * mesh.expert * mesh.context


def _parts(mesh: MeshShape) -> int:
    """Devices over which the layers' matrices are divided."""
    return _vocabulary_parts(mesh) * mesh.tensor
