"""How many devices each axis of the mesh has: chosen for a model and a slice, or checked where the job sets it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from tpujob_contract.batch_rows import divide_slice
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.parsing.from_mapping import Range


@dataclass(frozen=True, kw_only=True)
class MeshConfig:
    """Devices of a slice along each axis; their product, with what is left to `data`, is the slice."""

    fsdp: Annotated[int, Range(1, 1e6)] | None = None
    """Devices over which each matrix is divided. Default: as many as divide both the slice and embedDim."""
    tensor: Annotated[int, Range(1, 1e4)] = 1
    """Devices over which heads and mlpDim are divided; it must divide heads, kvHeads and mlpDim."""
    context: Annotated[int, Range(1, 1e4)] | None = None
    """Devices over which the positions of a row are divided. Default: 1, or more where a batch has too few rows."""
    expert: Annotated[int, Range(1, 1e4)] = 1
    """Devices over which experts are divided; it must divide experts."""


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
    """Why it is so, for people."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """In the order of `partitioning.AXES`."""
        return (self.slice, self.data, self.fsdp, self.expert, self.context, self.tensor)

    @property
    def rows(self) -> int:
        """Parts into which the rows of a batch are divided."""
        return self.slice * self.data * self.fsdp * self.expert


def choose_mesh(
    config: MeshConfig,
    model: ModelShape,
    *,
    devices: int,
    slices: int,
    batch_size: int | None = None,
    sequence_length: int | None = None,
) -> MeshShape:
    """The mesh of a run.

    Args:
        config: what the job sets.
        model: whose dimensions are divided.
        devices: of all slices.
        slices: how many.
        batch_size: rows of a global batch; None: not known.
        sequence_length: positions of a row; None: not known.

    Raises:
        ValueError: a size does not divide what it must; the message begins with the key at fault.
    """
    if devices % slices:
        raise ValueError(f"slices: {slices} do not divide {devices} devices")
    _check_model(config, model)
    per_slice = devices // slices
    context, rest = divide_slice(
        per_slice,
        slices=slices,
        tensor=config.tensor,
        context=config.context,
        expert=config.expert,
        fsdp=config.fsdp,
        rows=batch_size,
        positions=sequence_length,
    )
    others = context * config.expert
    if model.embed_dim % others:
        raise ValueError(f"context: context x expert is {others}, which does not divide embedDim ({model.embed_dim})")
    fsdp = config.fsdp or math.gcd(rest, model.embed_dim // others)
    if model.embed_dim % (fsdp * others):
        divides = math.gcd(rest, model.embed_dim // others)
        raise ValueError(
            f"fsdp: {fsdp * others} devices do not divide embedDim ({model.embed_dim}); {divides} is the largest "
            "that does"
        )
    return MeshShape(
        slice=slices,
        data=rest // fsdp,
        fsdp=fsdp,
        expert=config.expert,
        context=context,
        tensor=config.tensor,
        reason=_reason(config, model, rest, fsdp, context),
    )


def _check_model(config: MeshConfig, model: ModelShape) -> None:
    for key, size in (("heads", model.heads), ("kvHeads", model.kv_heads), ("mlpDim", model.mlp_dim)):
        if size % config.tensor:
            raise ValueError(f"tensor: {config.tensor} does not divide {key} ({size})")
    if config.expert > 1 and (model.experts is None or model.experts % config.expert):
        raise ValueError(f"expert: {config.expert} does not divide experts ({model.experts or 'there are none'})")


def _reason(config: MeshConfig, model: ModelShape, rest: int, fsdp: int, context: int) -> str:
    if config.fsdp:
        told = "fsdp as given"
    elif fsdp == rest:
        told = f"fsdp {fsdp}: all devices that no other axis takes"
    else:
        told = f"fsdp {fsdp}: the largest divisor of {rest} devices that divides embedDim ({model.embed_dim})"
    if context > 1 and not config.context:
        told += f"; context {context}: a batch has fewer rows than there are devices"
    return told
