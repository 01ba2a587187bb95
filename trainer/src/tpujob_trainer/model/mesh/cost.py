"""The devices of each mesh axis, and the estimated cost of a training step: bytes sent, and memory needed.

The counts are those of the programs that libtpu 0.0.50.1 makes of our step with `remat: full` (`make bench-maxtext`):

- A layer's weights are gathered in bfloat16 for the forward and for the backward pass; with `quantization` in one byte
  per number, and twice for the backward pass.
- Gradients are scattered if shards are wider than 128 lanes, and one side at a time from 64 devices of `fsdp` on
  (`partitioning.scattered_by_side`); otherwise, and for experts, they are summed whole, with twice the bytes.
- If all devices are `fsdp`, and fewer than that, gradients are scattered during computation, and some matrices are sent
  while they are multiplied (`rings`).
- A batch in parts gathers and scatters for each of them; replicas sum their shards once. With several replicas, a part
  is not scattered one side at a time.
- With `tensor`, the outputs of attention and of the feed-forward block are summed over that axis, five times with
  recomputation.
- With `expert`, the tokens of all devices of that axis are gathered, and results scattered, also five times, in layers
  that have experts.

For four models on v5p, sent bytes are within a tenth of the compiled program's, and peak memory is from
a twentieth below to a fifth above it.
"""

from dataclasses import dataclass

from tpujob_trainer.model.axes import AXES, Rings
from tpujob_trainer.model.chips import LANES, SCATTERED_AT_ONCE, Chip
from tpujob_trainer.model.mesh.rings import rings_on, scatters_beside
from tpujob_trainer.model.shape import ModelShape


@dataclass(frozen=True, kw_only=True)
class MeshShape:
    """Devices along each axis, in the order of the mesh."""

    slice: int = 1
    data: int = 1
    fsdp: int = 1
    expert: int = 1
    context: int = 1
    tensor: int = 1
    reason: str = ""
    """Why the sizes are so, for the log."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes in the order of `partitioning.AXES`."""
        return (self.slice, self.data, self.fsdp, self.expert, self.context, self.tensor)

    @property
    def rows(self) -> int:
        """Parts into which the rows of a batch are divided."""
        return self.slice * self.data * self.fsdp * self.expert


STATE_BYTES = 16
"""Bytes per weight: itself, two moments and its gradient, in float32."""
GATHERED_COPIES = 3
"""Layers whose gathered weights or whole gradients are in memory at once."""


@dataclass(frozen=True, kw_only=True)
class MeshCost:
    """Bytes per device for one step."""

    sent: float
    """Over the links of its slice, if each exchange uses a ring."""
    waiting: float
    """The part of `sent` during which nothing is computed."""
    peak: float


def mesh_cost(model: ModelShape, mesh: MeshShape, chip: Chip, *, rows: int, length: int, parts: int = 1) -> MeshCost:
    """The cost of a mesh without `context`.

    Args:
        model: of a family.
        mesh: that divides it.
        chip: of each device.
        rows: of a batch, on all devices, that are computed at once.
        length: positions of a row.
        parts: of a batch, each of `rows` rows, that are computed one after the other.
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
    # Experts' gradients are not scattered by rings of products.
    waiting = others + (experts_whole * 2 * _ring(mesh.fsdp) if scatters_beside(chip, sizes) else gradients)
    if not chip.hides_gathers:
        waiting += gathers - _hidden(model, rings_on(chip, sizes, model)) * _ring(dense_shards)
    shards = mesh.fsdp * mesh.expert * mesh.tensor
    layer = 2 * (dense / mesh.tensor + of_experts / mesh.tensor / mesh.expert) / model.layers
    peak = (
        STATE_BYTES * (dense + of_experts) / shards
        + STATE_BYTES * model.vocabulary_parameters / (mesh.fsdp * mesh.expert)
        + GATHERED_COPIES * layer
        # The output matrix and its gradient are whole: bfloat16 and float32.
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
    """Bytes sent for the gradients of each part of a batch, and once per step."""
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
    """Bytes of gathered weights that are sent during products; with `remat: full`, attention's are gathered again."""
    row = 2.0 * model.layers * model.embed_dim
    of_mlp = row * 3 * model.mlp_dim if rings.mlp else 0.0
    of_attention = row * 2 * (model.heads + model.kv_heads) * model.head_dim if rings.attention else 0.0
    return 2 * of_mlp + of_attention * (1 if model.remat == "full" else 2)


def _ring(devices: int) -> float:
    """The share of an array that each device sends to pass it once around a ring of devices."""
    return (devices - 1) / devices


def _kept_numbers(model: ModelShape, mesh: MeshShape) -> float:
    """Numbers per token and layer that are kept for the backward pass."""
    kept = float(model.embed_dim)
    if model.remat == "full":
        return kept + len(model.remat_save) * model.embed_dim / mesh.tensor
    experts = model.experts_per_token * mesh.expert if model.experts else 1
    heads = (model.heads + 2 * model.kv_heads) * model.head_dim
    products = kept + (heads + 2 * experts * model.mlp_dim) / mesh.tensor
    return kept + products * (1 if model.remat == "dots" else 2)


def _block_numbers(model: ModelShape, mesh: MeshShape) -> float:
    """Numbers per token in memory while its layer is computed: inside the feed-forward block, and outside."""
    if model.experts:
        copies = model.experts_per_token * mesh.expert
        return copies * (3 * model.mlp_dim / mesh.tensor + 2 * model.embed_dim)
    return 3 * model.mlp_dim / mesh.tensor + 8 * model.embed_dim
