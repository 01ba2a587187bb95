"""What launcher 0 knows of the programs of one attempt. Pure."""

import contextlib
import enum
from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Optional, Sequence, Set, Tuple

from tpujob_contract.reports.progress_state import ProgressState
from tpujob_launcher.peers import messages, verdict
from tpujob_launcher.peers.messages import End
from tpujob_launcher.peers.timing import HEARTBEATS, STRAGGLER_HEARTBEATS
from tpujob_launcher.peers.verdict import ENDING_PHASES, Name, Program

CONFIGURATION_ERROR, TRAINER_ERROR = "ConfigurationError", "TrainerError"
"""The trainer's errors for processes that run different things: of pods that started together, and of others."""


class Phase(enum.Enum):
    """What the programs of the job do."""

    LEARNING = enum.auto()
    """This launcher 0 is a replacement, and does not know yet which attempt ran."""
    RUNNING = enum.auto()
    """They run, or may start; those that connect to their launchers may still wait for one another."""
    ENDING = enum.auto()
    """They end, and start again when all hosts are ready."""


@dataclass
class Attempt:
    """What is known of the programs of one attempt."""

    programs: Dict[int, Program] = field(default_factory=dict)
    """Those that wait for the others, or have met them."""
    meet_until: Optional[float] = None
    met: Optional[Mapping[str, Any]] = None
    refused: Optional[Mapping[str, Any]] = None
    """Why they cannot meet."""
    ends: Dict[int, End] = field(default_factory=dict)
    """Of programs that failed, and of processes that disappeared; the first report of each counts."""
    first: Optional[End] = None
    """The end from which the other ones follow."""
    lost_pods: Dict[int, End] = field(default_factory=dict)
    """Ends of pods that are replaced; no program has to end because of one before the attempt is ended."""
    asked: str = ""
    """Which process was asked to stop first, as in "SIGTERM at process 1 on host h"."""
    done: Set[int] = field(default_factory=set)
    """Processes that ended in order, or were lost with others: no further end of them counts."""
    progress: Dict[int, Tuple[ProgressState, float]] = field(default_factory=dict)
    """The last report of each process, and when it came."""
    silent: Set[int] = field(default_factory=set)
    """Silent processes that have been named."""

    @property
    def states(self) -> Dict[int, ProgressState]:
        """The last report of each process."""
        return {process: state for process, (state, _) in self.progress.items()}

    def progressed(self, process: int, state: Any, now: float) -> None:
        """A program reports its progress; an invalid report is ignored."""
        with contextlib.suppress(ValueError):
            self.progress[process] = ProgressState.parse(state), now

    def stragglers(self, now: float, heartbeat_seconds: float, processes: int, name: Name) -> str:
        """The processes behind the others while none makes progress; empty while none stands out."""
        progress, interval = self.progress, heartbeat_seconds / HEARTBEATS
        own = progress[0][0] if 0 in progress else None
        if own is None or own.seconds <= STRAGGLER_HEARTBEATS * interval or own.phase in ENDING_PHASES:
            return ""
        # A report from before a process stopped shows where it was, not where it is.
        since = now - own.seconds + interval
        if any(i not in progress or progress[i][1] < since for i in range(1, processes)):
            return ""
        return verdict.stragglers(self.states, name)

    def join(self, program: Program) -> str:
        """Adds a program; returns how it, or one that came before, differs from that of process 0, or ""."""
        self.programs[program.process] = program
        own = self.programs.get(0)
        if own is None:
            return ""
        new = [program] if program.process else [self.programs[i] for i in sorted(self.programs)]
        return next(filter(None, (verdict.disagreement(each, own) for each in new)), "")

    def state(self, hosts: Sequence[str]) -> Dict[str, Any]:
        """What all launchers are told of it."""
        first = self.first and {**messages.values_of(self.first), "host": hosts[self.first.process]}
        return {"first": first, "asked": self.asked or None, "met": self.met, "refused": self.refused}
