"""What a mesh costs a step of training, by arithmetic: bytes that a device sends, and about how much memory it needs.

The counts are those of the programs that libtpu 0.0.50.1 makes of our step with `remat: full` (`make bench-maxtext`):

- A layer's weights are gathered in bfloat16 for the forward and for the backward pass; with `quantization` in one byte
  a number, and for the backward pass twice.
- Gradients are scattered where shards are wider than 128 lanes, and side by side over 64 devices of `fsdp` and more
  (`partitioning.scattered_by_side`); elsewhere, and for experts, they are summed whole: twice the bytes.
- Where all of fewer devices are `fsdp`, gradients are scattered beside arithmetic, and some matrices travel while they
  are multiplied (`rings`).
- A batch in parts gathers and scatters for each of them; replicas sum their shards once. A part of several replicas is
  not scattered side by side.
- With `tensor`, what attention and the block of a layer add is summed over that axis, five times with recomputation.
- With `expert`, the tokens of all devices of that axis are gathered, and results scattered, five times as well, in
  layers that have experts.

For four models on v5p, sent bytes are within a tenth of the compiled program's, and peak memory is from
a twentieth below to a fifth above it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpujob_trainer.model.chips import LANES, SCATTERED_AT_ONCE, Chip
from tpujob_trainer.model.mesh.rings import rings_on, scatters_beside
from tpujob_trainer.model.mesh.shape import MeshShape
from tpujob_trainer.model.partitioning import AXES, Rings
from tpujob_trainer.model.shape import ModelShape

STATE_BYTES = 16
"""Of a weight: itself and two moments in float32, and its gradient."""
GATHERED_COPIES = 3
"""Layers whose weights or whole gradients are there at once."""


@dataclass(frozen=True, kw_only=True)
class MeshCost:
    """Bytes of one device, for a step."""

    sent: float
    """On the links of its slice, if each exchange goes round a ring."""
    waiting: float
    """Of `sent`: nothing is computed meanwhile."""
    peak: float


def mesh_cost(model: ModelShape, mesh: MeshShape, chip: Chip, *, rows: int, length: int, parts: int = 1) -> MeshCost:
    """What a mesh without `context` costs.

    Args:
        model: of a family.
        mesh: that divides it.
        chip: of each device.
        rows: of a batch, on all devices, that pass through the mesh at once.
        length: positions of a row.
        parts: of a batch, each of so many rows, that pass one after the other.
    """
    with_experts = model.layers - model.dense_layers if model.experts else 0
    of_experts = with_experts * 3 * model.embed_dim * model.mlp_dim * model.experts if model.experts else 0
    dense = model.num_parameters - of_experts - model.vocabulary_parameters
    tokens = rows * length // mesh.rows
    stream = 2 * tokens * model.embed_dim
    sums = (5 if model.remat == "full" else 4) * stream
    dense_shards = mesh.fsdp * mesh.expert
    dense_whole, experts_whole = 2 * dense / mesh.tensor, 2 * of_experts / mesh.tensor / mesh.expert
    passes = 1.5 if model.gathers_narrow else 2
    gathers = passes * (dense_whole * _ring(dense_shards) + experts_whole * _ring(mesh.fsdp))
    gradients, once = _gradients(model, mesh, parts, dense_whole, experts_whole)
    others = sums * model.layers * 2 * _ring(mesh.tensor) + sums * with_experts * (mesh.expert - 1)
    sizes = dict(zip(AXES, mesh.sizes, strict=True))
    # No product makes a ring of experts' gradients.
    waiting = others + (experts_whole * 2 * _ring(mesh.fsdp) if scatters_beside(chip, sizes) else gradients)
    if not chip.hides_gathers:
        waiting += gathers - _hidden(model, rings_on(chip, sizes, model)) * _ring(dense_shards)
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
    return MeshCost(
        sent=parts * (gathers + gradients + others) + once,
        waiting=parts * waiting + once,
        peak=peak,
    )


def _gradients(
    model: ModelShape, mesh: MeshShape, parts: int, dense_whole: float, experts_whole: float
) -> tuple[float, float]:
    """Bytes sent for the gradients of each part of a batch, and once a step."""
    dense_shards, replicas = mesh.fsdp * mesh.expert, mesh.slice * mesh.data
    is_apart = parts > 1 and replicas > 1
    is_narrow = model.embed_dim // dense_shards <= LANES
    by_side = mesh.expert == 1 and mesh.fsdp >= SCATTERED_AT_ONCE and not is_apart
    if is_apart:
        once = 2 * (dense_whole / dense_shards + experts_whole / mesh.fsdp) * _ring(mesh.data)
        each = dense_whole * (2 if is_narrow else 1) * _ring(dense_shards) + experts_whole * 2 * _ring(mesh.fsdp)
        return each, once
    is_scattered = mesh.data == 1 and (by_side or not is_narrow)
    dense = dense_whole * (1 if is_scattered else 2) * _ring(mesh.data * dense_shards)
    return dense + experts_whole * 2 * _ring(mesh.data * mesh.fsdp), 0.0


def _hidden(model: ModelShape, rings: Rings) -> float:
    """Of gathered weights, what travels while it is multiplied; with `remat: full` attention's is gathered again."""
    row = 2.0 * model.layers * model.embed_dim
    of_mlp = row * 3 * model.mlp_dim if rings.mlp else 0.0
    of_attention = row * 2 * (model.heads + model.kv_heads) * model.head_dim if rings.attention else 0.0
    return 2 * of_mlp + of_attention * (1 if model.remat == "full" else 2)


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
