"""What a mesh costs a step of training, by arithmetic: bytes that a device sends, and about how much memory it needs.

The counts are those of the programs that libtpu 0.0.50.1 makes of our step with `remat: full` (`make bench-maxtext`):

- A layer's weights are gathered in bfloat16 for the forward and for the backward pass.
- Gradients are scattered where shards are wider than 128 lanes, and summed whole elsewhere and for experts: twice the
  bytes.
- With `tensor`, what attention and the block of a layer add is summed over that axis, five times with recomputation.
- With `expert`, the tokens of all devices of that axis are gathered, and results scattered, five times as well, in
  layers that have experts.

For four models on v5p, sent bytes are within a tenth of the compiled program's, and peak memory is from
a twentieth below to a fifth above it. On v6e, the flags of the published recipes make the compiler sum gradients whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpujob_trainer.model.chips import Chip
from tpujob_trainer.model.mesh.shape import MeshShape
from tpujob_trainer.model.shape import ModelShape

LANES = 128
"""Numbers of a row of a vector register."""
STATE_BYTES = 16
"""Of a weight: itself and two moments in float32, and its gradient."""
GATHERED_COPIES = 3
"""Layers whose weights or whole gradients are there at once."""


@dataclass(frozen=True, kw_only=True)
class MeshCost:
    """Bytes of one device, for rows that pass through the mesh at once."""

    sent: float
    """On the links of its slice, if each exchange goes round a ring."""
    waiting: float
    """Of `sent`: nothing is computed meanwhile."""
    peak: float


def mesh_cost(model: ModelShape, mesh: MeshShape, chip: Chip, *, rows: int, length: int) -> MeshCost:
    """What a mesh without `context` costs.

    Args:
        model: of a family.
        mesh: that divides it.
        chip: of each device.
        rows: of a batch, on all devices, that pass through the mesh at once.
        length: positions of a row.
    """
    with_experts = model.layers - model.dense_layers if model.experts else 0
    of_experts = with_experts * 3 * model.embed_dim * model.mlp_dim * model.experts if model.experts else 0
    dense = model.num_parameters - of_experts - model.vocabulary_parameters
    tokens = rows * length // mesh.rows
    stream = 2 * tokens * model.embed_dim
    sums = (5 if model.remat == "full" else 4) * stream
    dense_shards = mesh.fsdp * mesh.expert
    dense_whole, experts_whole = 2 * dense / mesh.tensor, 2 * of_experts / mesh.tensor / mesh.expert
    gathers = 2 * (dense_whole * _ring(dense_shards) + experts_whole * _ring(mesh.fsdp))
    is_scattered = mesh.data == 1 and model.embed_dim // dense_shards > LANES
    others = (
        dense_whole * (1 if is_scattered else 2) * _ring(mesh.data * dense_shards)
        + experts_whole * 2 * _ring(mesh.data * mesh.fsdp)
        + sums * model.layers * 2 * _ring(mesh.tensor)
        + sums * with_experts * (mesh.expert - 1)
    )
    shards = mesh.fsdp * mesh.expert * mesh.tensor
    layer = 2 * (dense / mesh.tensor + of_experts / mesh.tensor / mesh.expert) / model.layers
    peak = (
        STATE_BYTES * (dense + of_experts) / shards
        + STATE_BYTES * model.vocabulary_parameters / (mesh.fsdp * mesh.expert)
        + GATHERED_COPIES * layer
        # The head and its gradient are whole: bfloat16 and float32.
        + 6 * model.vocab_size * model.embed_dim
        + model.layers * tokens * 2 * _kept_numbers(model, mesh)
        + tokens * 2 * _block_numbers(model, mesh)
    )
    return MeshCost(sent=gathers + others, waiting=others + (0 if chip.hides_gathers else gathers), peak=peak)


def _ring(devices: int) -> float:
    """Of an array, what each device sends so that it goes once round so many."""
    return (devices - 1) / devices


def _kept_numbers(model: ModelShape, mesh: MeshShape) -> float:
    """Of a token and a layer, what is kept for the backward pass."""
    kept = float(model.embed_dim)
    if model.remat == "full":
        return kept + len(model.remat_save) * model.embed_dim / mesh.tensor
    experts = model.experts_per_token * mesh.expert if model.experts else 1
    heads = (model.heads + 2 * model.kv_heads) * model.head_dim
    products = kept + (heads + 2 * experts * model.mlp_dim) / mesh.tensor
    return kept + products * (1 if model.remat == "dots" else 2)


def _block_numbers(model: ModelShape, mesh: MeshShape) -> float:
    """Of a token, while its layer is computed: inside the block, and beside it."""
    if model.experts:
        copies = model.experts_per_token * mesh.expert
        return copies * (3 * model.mlp_dim / mesh.tensor + 2 * model.embed_dim)
    return 3 * model.mlp_dim / mesh.tensor + 8 * model.embed_dim
