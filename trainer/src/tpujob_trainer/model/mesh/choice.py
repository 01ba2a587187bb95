"""The number of devices of each mesh axis: chosen for a model and a slice, or checked if the job sets it."""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

from tpujob_contract.batch_rows import divide_slice
from tpujob_trainer.model.chips import Chip
from tpujob_trainer.model.mesh.cost import MeshShape, mesh_cost
from tpujob_trainer.model.shape import CustomShape, ModelShape
from tpujob_trainer.values.from_mapping import Range

LARGE_SLICE = 64
"""From this many devices of a slice on, meshes other than the plain one are considered."""
LARGE_FOR_EXPERTS = 16
"""The same for a mixture of experts, whose matrices are many times larger than those that a token uses."""
WORTH_IT = 0.8
"""The most bytes that another mesh may wait for, relative to the plain mesh."""
FILLED = 0.5
"""The largest share of a device's memory that another mesh may need, by an estimate that is off by up to a fifth. If
the plain mesh itself needs more, another may need `A_LITTLE_MORE` times as much."""
A_LITTLE_MORE = 1.1
NEARLY_FULL = 0.9
"""The share of a device's memory that no other mesh may reach."""


@dataclass(frozen=True, kw_only=True)
class MeshConfig:
    """Devices of a slice along each axis; their product, with what is left to `data`, is the slice."""

    fsdp: Annotated[int, Range(1, 1e6)] | None = None
    """Devices over which each matrix is divided. Default: as many as divide both the slice and embedDim."""
    tensor: Annotated[int, Range(1, 1e4)] | None = None
    """Devices over which heads and mlpDim are divided; it must divide heads, kvHeads and mlpDim. Default: 1, or more
    on a slice of 64 chips or more where a step then waits for a fifth less and fits into memory."""
    context: Annotated[int, Range(1, 1e4)] | None = None
    """Devices over which the positions of a row are divided. Default: 1, or more where a batch has too few rows."""
    expert: Annotated[int, Range(1, 1e4)] | None = None
    """Devices over which experts are divided; it must divide experts. Default: 1, or more on a slice of 16 chips or
    more where a step then waits for a fifth less and fits into memory."""


def choose_mesh(
    config: MeshConfig,
    model: ModelShape,
    *,
    devices: int,
    slices: int,
    batch_size: int | None = None,
    sequence_length: int | None = None,
    chip: Chip | None = None,
) -> MeshShape:
    """The mesh of a run.

    If the job sets no axis, and chip and batch are known, another mesh replaces the plain one if it fits into memory
    and its step waits for at least a fifth fewer bytes.

    Args:
        config: what the job sets.
        model: whose dimensions are divided.
        devices: of all slices.
        slices: number of slices.
        batch_size: rows of a global batch; None: not known.
        sequence_length: positions of a row; None: not known.
        chip: of each device; None: not known, or no TPU.

    Raises:
        ValueError: a size does not divide what it must; the message begins with the key at fault.
    """
    plain = _plain_mesh(
        config, model, devices=devices, slices=slices, batch_size=batch_size, sequence_length=sequence_length
    )
    is_free = config == MeshConfig() and plain.context == 1 and not isinstance(model, CustomShape)
    if not is_free or not batch_size or not sequence_length or chip is None:
        return plain

    costs = {
        mesh: mesh_cost(model, mesh, chip, rows=batch_size, length=sequence_length)
        for mesh in (plain, *_other_meshes(model, plain))
    }
    before = costs[plain].waiting
    memory = max(FILLED * chip.hbm_bytes, min(A_LITTLE_MORE * costs[plain].peak, NEARLY_FULL * chip.hbm_bytes))
    better = {mesh: cost for mesh, cost in costs.items() if cost.peak < memory and cost.waiting <= WORTH_IT * before}
    if not better:
        return plain

    def best_of(meshes: Iterable[MeshShape]) -> MeshShape | None:
        return min(meshes, key=lambda mesh: (better[mesh].waiting, better[mesh].peak), default=None)

    whole, best = best_of(mesh for mesh in better if mesh.tensor == 1), best_of(better)
    assert best is not None
    # `tensor` makes products smaller and adds sums inside a layer, whose costs bytes do not show.
    if whole is not None and better[best].waiting > WORTH_IT * better[whole].waiting:
        best = whole
    axes = ("data", "fsdp", "expert", "tensor")
    sizes = ", ".join(f"{axis} {getattr(best, axis)}" for axis in axes if getattr(best, axis) > 1)
    sums = f"about {better[best].waiting / 1e9:,.0f} GB, {before / 1e9:,.0f} with fsdp {plain.fsdp}"
    return dataclasses.replace(best, reason=f"{sizes}: a step waits for {sums}")


def possible_meshes(model: ModelShape, *, per_slice: int, slices: int) -> Iterator[MeshShape]:
    """Yields all meshes without `context`, of `per_slice` devices per slice, that divide a model."""
    # Biases and sinks of heads are not divided over `tensor`.
    is_whole = model.out_bias or model.sinks or model.experts_bias
    for tensor, expert in itertools.product([1] if is_whole else _divisors(per_slice), _divisors(per_slice)):
        if per_slice % (tensor * expert) or any(size % tensor for _, size in _divided_by_tensor(model)):
            continue
        if expert > 1 and (model.experts is None or model.experts % expert):
            continue
        rest = per_slice // (tensor * expert)
        for fsdp in _divisors(rest):
            if math.gcd(*model.divided_dims) % (fsdp * expert) == 0:
                yield MeshShape(slice=slices, data=rest // fsdp, fsdp=fsdp, expert=expert, tensor=tensor)


def _other_meshes(model: ModelShape, plain: MeshShape) -> Iterator[MeshShape]:
    """Yields the possible meshes that may replace the plain one."""
    per_slice = plain.data * plain.fsdp
    is_large = per_slice >= LARGE_SLICE
    if not is_large and (not model.experts or per_slice < LARGE_FOR_EXPERTS):
        return
    for mesh in possible_meshes(model, per_slice=per_slice, slices=plain.slice):
        if mesh.tensor == 1 or is_large:
            yield mesh


def _plain_mesh(
    config: MeshConfig,
    model: ModelShape,
    *,
    devices: int,
    slices: int,
    batch_size: int | None,
    sequence_length: int | None,
) -> MeshShape:
    """The mesh as the job sets it, with remaining devices on `fsdp` if they divide; arguments as in `choose_mesh`."""
    if devices % slices:
        raise ValueError(f"slices: {slices} do not divide {devices} devices")
    _check_model(config, model)
    tensor, expert = config.tensor or 1, config.expert or 1
    context, rest = divide_slice(
        devices // slices,
        slices=slices,
        tensor=tensor,
        context=config.context,
        expert=expert,
        fsdp=config.fsdp,
        rows=batch_size,
        positions=sequence_length,
    )
    others = context * expert
    divided, words = math.gcd(*model.divided_dims), _divided_words(model)
    if divided % others:
        raise ValueError(f"context: context x expert is {others}, which does not divide {words}")
    divides = math.gcd(rest, divided // others)
    fsdp = config.fsdp or divides
    if divided % (fsdp * others):
        raise ValueError(f"fsdp: {fsdp * others} devices do not divide {words}; {divides} is the largest that does")
    return MeshShape(
        slice=slices,
        data=rest // fsdp,
        fsdp=fsdp,
        expert=expert,
        context=context,
        tensor=tensor,
        reason=_reason(config, model, rest, fsdp, context),
    )


def _check_model(config: MeshConfig, model: ModelShape) -> None:
    for key, size in _divided_by_tensor(model):
        if size % (config.tensor or 1):
            raise ValueError(f"tensor: {config.tensor} does not divide {key} ({size})")
    if config.expert and config.expert > 1 and (model.experts is None or model.experts % config.expert):
        raise ValueError(f"expert: {config.expert} does not divide experts ({model.experts or 'there are none'})")


def _divided_by_tensor(model: ModelShape) -> tuple[tuple[str, int], ...]:
    inside = {"mlpDim": model.mlp_dim, "sharedMlpDim": model.shared_mlp_dim, "denseMlpDim": model.dense_mlp_dim}
    of_blocks = [(name, size) for name, size in inside.items() if size is not None]
    return ("heads", model.heads), ("kvHeads", model.kv_heads), *of_blocks


def _divided_words(model: ModelShape) -> str:
    embed_dim, *ranks = model.divided_dims
    widths = f" and the latents' widths ({', '.join(map(str, ranks))})" if ranks else ""
    return f"embedDim ({embed_dim}){widths}"


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


def _reason(config: MeshConfig, model: ModelShape, rest: int, fsdp: int, context: int) -> str:
    if config.fsdp:
        told = "fsdp as given"
    elif fsdp == rest:
        told = f"fsdp {fsdp}: all devices that no other axis takes"
    else:
        told = f"fsdp {fsdp}: the largest divisor of {rest} devices that divides {_divided_words(model)}"
    if context > 1 and not config.context:
        told += f"; context {context}: a batch has fewer rows than there are devices"
    return told
