"""The number of devices of each mesh axis."""

from __future__ import annotations

from dataclasses import dataclass


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
