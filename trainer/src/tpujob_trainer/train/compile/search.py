"""A search for faster layouts of the same training: thousands are compared by arithmetic, the best few compiled.

Model, data, batch and optimizer stay, and so do the losses; mesh, recomputation and the number of parts of a batch
change. Arithmetic determines the order in which to compile; only compiled layouts are recommended.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tpujob_trainer.config.resolve import ResolvedConfig
from tpujob_trainer.model.chips import Chip
from tpujob_trainer.model.mesh.choice import MeshConfig, choose_mesh, possible_meshes
from tpujob_trainer.model.mesh.cost import MeshShape, mesh_cost
from tpujob_trainer.model.shape import CustomShape, ModelShape, RematName
from tpujob_trainer.train.arithmetic import attention_flops_per_token, forward_flops_per_token
from tpujob_trainer.train.compile.changes import Block, Change, Compile, Tried, with_changes

FILLED = 0.95
"""The fraction of a device's memory that a layout may need by arithmetic."""
FITTING = 3
"""Compiling stops after this many layouts that fit."""
COMPILED = 6
"""The most layouts that are compiled."""
REMAT: tuple[tuple[str, tuple[RematName, ...]], ...] = (
    ("full", ()),
    ("full", ("attention",)),
    ("dots", ()),
    ("none", ()),
)
"""Pairs of model.remat and model.rematSave to try."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A layout of a training, and its figures by arithmetic."""

    changes: tuple[Change, ...]
    """Changes to the configuration; empty: it is unchanged."""
    seconds: float
    """Of a step, with recomputation and exchanges that the core waits for."""
    peak_bytes: float


def layouts(run: ResolvedConfig, chip: Chip, *, devices: int) -> list[Layout]:
    """All other layouts that fit by arithmetic, the fastest first.

    Args:
        run: Its model, batch and optimizer stay. There are no layouts with `context`, offloading or a custom model, for
            which the arithmetic is not valid.
        chip: Of each device.
        devices: Number of devices of all slices.
    """
    model = run.model
    if isinstance(model, CustomShape) or run.mesh.context > 1 or model.remat_offload:
        return []
    chosen = _Chosen(run, chip, devices)
    found = [
        _layout(run, chip, devices, mesh, remat, saved, parts, chosen)
        for mesh, (remat, saved) in itertools.product(_meshes(run, devices), REMAT)
        for parts in _accumulations(run.batch_size, mesh, run.gradient_accumulation)
    ]
    fitting = (each for each in found if each.changes and each.peak_bytes < FILLED * chip.hbm_bytes)
    return sorted(fitting, key=lambda each: (each.seconds, each.peak_bytes))


def best_compiled(block: Block, found: Iterable[Layout], compile_block: Compile) -> list[Tried]:
    """The configuration and the first layouts, compiled until `FITTING` fit; those that fit and the fastest first."""
    tried = [Tried((), compile_block(block))]
    for layout in itertools.islice(found, COMPILED):
        compiled = compile_block(with_changes(block, layout.changes))
        tried.append(Tried(layout.changes, compiled))
        if sum(each.compiled["fits"] for each in tried[1:]) == FITTING:
            break
    return sorted(tried, key=lambda each: (not each.compiled["fits"], each.compiled["ideal_step_seconds"]))


def _meshes(run: ResolvedConfig, devices: int) -> Iterator[MeshShape]:
    slices = run.mesh.slice
    meshes = possible_meshes(run.model, per_slice=devices // slices, slices=slices)
    return (mesh for mesh in meshes if run.batch_size % mesh.rows == 0)


def _accumulations(batch_size: int, mesh: MeshShape, given: int) -> Iterator[int]:
    """Numbers of parts of a batch to try: powers of two and the given one, if they divide its rows."""
    rows = batch_size // mesh.rows
    parts = {given, *(2**power for power in range(rows.bit_length()))}
    return (each for each in sorted(parts) if rows % each == 0)


def _layout(
    run: ResolvedConfig,
    chip: Chip,
    devices: int,
    mesh: MeshShape,
    remat: str,
    saved: tuple[RematName, ...],
    parts: int,
    chosen: _Chosen,
) -> Layout:
    model = dataclasses.replace(run.model, remat=remat, remat_save=saved)
    cost = mesh_cost(model, mesh, chip, rows=run.batch_size // parts, length=run.sequence_length, parts=parts)
    tokens = run.tokens_per_step / devices
    forward = forward_flops_per_token(model, run.sequence_length, is_causal=True)
    operations = tokens * (3 * forward + _recomputed(model, forward, run.sequence_length))
    arithmetic = operations / chip.flops * chip.arithmetic_share(model.quantization)
    return Layout(
        changes=tuple(_changes(run, model, mesh, parts, chosen)),
        seconds=arithmetic + cost.waiting / chip.link_bytes_per_second,
        peak_bytes=cost.peak,
    )


def _recomputed(model: ModelShape, forward: int, length: int) -> int:
    """FLOPs for a token that the backward pass recomputes."""
    attention = attention_flops_per_token(model, length, is_causal=True)
    if model.remat == "full":
        again = forward - 2 * model.embed_dim * model.vocab_size - (0 if model.post_norms else _last_products(model))
        return again - attention if "attention" in model.remat_save else again
    return attention if model.remat == "dots" else 0


def _last_products(model: ModelShape) -> int:
    """FLOPs for a token whose results only the sum after a feed-forward block needs."""
    width = model.mlp_dim * (model.experts_per_token if model.experts else 1) + (model.shared_mlp_dim or 0)
    dense = model.dense_layers * (model.dense_mlp_dim or 0)
    return 2 * model.embed_dim * ((model.layers - model.dense_layers) * width + dense)


class _Chosen:
    """The meshes chosen for a job that sets none: fewer rows at once, or other activations, may give another mesh."""

    def __init__(self, run: ResolvedConfig, chip: Chip, devices: int) -> None:
        self._run, self._chip, self._devices = run, chip, devices
        self._sizes: dict[tuple[str, tuple[RematName, ...], int], tuple[int, ...]] = {}
        self._is_free = self._of(run.model, run.gradient_accumulation) == run.mesh.sizes

    def keeps(self, model: ModelShape, parts: int) -> bool:
        """Whether the job keeps its mesh with this model's `remat` and `parts` parts of a batch."""
        return not self._is_free or self._of(model, parts) == self._run.mesh.sizes

    def _of(self, model: ModelShape, parts: int) -> tuple[int, ...]:
        key = (model.remat, model.remat_save, parts)
        if key not in self._sizes:
            try:
                self._sizes[key] = choose_mesh(
                    MeshConfig(),
                    model,
                    devices=self._devices,
                    slices=self._run.mesh.slice,
                    batch_size=self._run.batch_size // parts,
                    sequence_length=self._run.sequence_length,
                    chip=self._chip,
                ).sizes
            except ValueError:  # no mesh can be chosen for a part of the batch; an explicit one may fit
                self._sizes[key] = ()
        return self._sizes[key]


def _changes(run: ResolvedConfig, model: ModelShape, mesh: MeshShape, parts: int, chosen: _Chosen) -> Iterator[Change]:
    if mesh.sizes != run.mesh.sizes or not chosen.keeps(model, parts):
        yield Change("mesh.fsdp", mesh.fsdp)
        for axis in ("tensor", "expert"):
            size = getattr(mesh, axis)
            if size > 1 or getattr(run.mesh, axis) > 1:
                yield Change(f"mesh.{axis}", size)
    if model.remat != run.model.remat:
        yield Change("model.remat", model.remat)
    if model.remat_save != run.model.remat_save:
        yield Change("model.rematSave", model.remat_save or None)
    if parts != run.gradient_accumulation:
        yield Change("gradientAccumulation", parts)
