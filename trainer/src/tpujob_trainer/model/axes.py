"""The axes of every mesh by name, and the matrices that stay divided over them; imported without JAX."""

import dataclasses

SLICE = "slice"
DATA = "data"
FSDP = "fsdp"
EXPERT = "expert"
CONTEXT = "context"
TENSOR = "tensor"

AXES = (SLICE, DATA, FSDP, EXPERT, CONTEXT, TENSOR)
"""The axes of every mesh, those with the slowest links first."""

ROW_AXES = (SLICE, DATA, FSDP, EXPERT)
WEIGHT_AXES = (FSDP, EXPERT, CONTEXT)
"""Axes over which a matrix is divided, in addition to its own axis."""
REPLICA_AXES = (SLICE, DATA)
"""Axes along which all weights are the same."""


@dataclasses.dataclass(frozen=True)
class Rings:
    """Matrices of a layer that are not gathered before products."""

    mlp: bool = False
    """Those of a feed-forward block."""
    attention: bool = False


NO_RINGS = Rings()
