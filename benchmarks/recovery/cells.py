"""The cells of the table: place, program, fault, and whether restarts are in place."""

import dataclasses

from benchmarks.recovery.faults import FAULTS, OF_NODE, OF_POD
from benchmarks.recovery.programs import STEP_LINES

PLACES = {"two processes, `tpujob run`": 0, "2 pods": 2, "16 pods": 16}
"""The number of pods of each place; 0: processes on this machine."""
PROGRAMS = tuple(STEP_LINES)

__all__ = ["FAULTS", "PLACES", "PROGRAMS", "Cell", "why_not"]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One cell of the table."""

    place: str
    program: str
    fault: str
    in_place: bool

    @property
    def pods(self) -> int:
        """The number of pods; 0: processes on this machine."""
        return PLACES[self.place]

    @property
    def key(self) -> str:
        """The key in the file of results."""
        return f"{self.place}; {self.program}; {self.fault}; {'in place' if self.in_place else 'anew'}"


def why_not(cell: Cell) -> str:
    """Why a cell is not measured; empty: it is."""
    if cell.fault in (OF_POD, OF_NODE) and not cell.pods:
        return "no pods"
    if cell.fault == "OOM kill" and not cell.pods:
        return "no memory limit, as `kill -9`"
    if cell.pods > 2 and cell.fault == OF_NODE:
        return "two machines in one, each with room for one pod"
    return ""
