"""How many devices each axis of the mesh has: chosen for a model and a slice, or checked where it is said by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from tpujob_trainer.config_parsing import Range
from tpujob_trainer.model.shape import ModelShape


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
        config: what was said by hand.
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
    context = config.context or _least_context(config, per_slice, slices, batch_size, sequence_length)
    if sequence_length and sequence_length % context:
        raise ValueError(f"context: {context} does not divide sequenceLength ({sequence_length})")
    inner = config.tensor * context * config.expert
    if per_slice % inner:
        raise ValueError(
            f"tensor: tensor x context x expert is {inner}, which does not divide the {per_slice} devices of a slice"
        )
    rest = per_slice // inner
    others = context * config.expert
    if model.embed_dim % others:
        raise ValueError(f"context: context x expert is {others}, which does not divide embedDim ({model.embed_dim})")
    fsdp = config.fsdp or math.gcd(rest, model.embed_dim // others)
    if rest % fsdp:
        raise ValueError(f"fsdp: {fsdp} does not divide the {rest} devices that are left of a slice")
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


def _least_context(
    config: MeshConfig, per_slice: int, slices: int, batch_size: int | None, sequence_length: int | None
) -> int:
    """1, or so many devices for each row that the rows of a batch divide over what is left."""
    if batch_size is None or sequence_length is None:
        return 1
    of_slice = per_slice // config.tensor
    if batch_size >= of_slice * slices:
        return 1
    for context in range(2, of_slice // config.expert + 1):
        fits = of_slice % (context * config.expert) == 0 and batch_size % (of_slice // context * slices) == 0
        if fits and sequence_length % context == 0:
            return context
    return 1


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
