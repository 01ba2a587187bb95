"""Who ended the run, and what each process says about it. Pure.

Process 0 decides while it lives: it has the progress state of every process, and the first failure that reaches it is
the cause. Where process 0 itself is lost, each of the others knows that much.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, Self

from tpujob_contract import ExitCode
from tpujob_contract.exit_codes import FATAL
from tpujob_trainer.distributed.rendezvous_messages import MAX_NAMED, listed

MESSAGE_CHARACTERS = 2000
"""Longer messages are cut: a termination message holds 4096 bytes, and has to hold the name of the host too."""


@dataclasses.dataclass(frozen=True)
class ProgressState:
    """How far a process has come, as it says itself."""

    phase: str = "starting"
    step: int = 0
    progress_count: int = 0
    """Signs of progress so far: steps and changes of phase. All processes of a run go through the same ones."""
    seconds: float = 0.0
    """Since the last of them."""
    where: str = ""
    """What its main thread is doing: file, line and function."""
    waits: bool = False
    """Whether that is waiting for the others."""

    @property
    def progress(self) -> tuple[int, int]:
        """Comparable between the processes of a run."""
        return (self.step, self.progress_count)

    def __str__(self) -> str:
        return f"{self.phase}, after step {self.step}" + (f", at {self.where}" if self.where else "")


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why the run ends."""

    process: int
    """The first to fail; of a stall, the first to notice it."""
    code: int
    message: str
    kind: Literal["failed", "lost", "stalled"] = "failed"

    @classmethod
    def parse(cls, values: Any) -> Self:
        """From the network.

        Raises:
            ValueError: it is something else.
        """
        try:
            failure = cls(**values)
            if type(failure.process) is not int or type(failure.code) is not int:
                raise ValueError("not a failure")
            return dataclasses.replace(failure, message=str(failure.message)[:MESSAGE_CHARACTERS])
        except TypeError as error:
            raise ValueError("not a failure") from error


def lost(processes: Collection[int], name: Callable[[int], str], *, silent_seconds: float | None = None) -> Failure:
    """Processes that went without a word.

    Args:
        processes: Which ones, at least one.
        name: A process as people look for it.
        silent_seconds: How long nothing was heard of them; None when the connection broke.
    """
    first, *rest = sorted(processes)
    seen = "its connection broke" if silent_seconds is None else f"silent for {silent_seconds:.0f} s"
    also = f" (and so {listed([name(i) for i in rest])})" if rest else ""
    cause = (
        "it was killed or crashed; the exit code and the log of its pod have the cause"
        if silent_seconds is None
        else "it hangs, or its machine or network is gone"
    )
    return Failure(first, 1, f"{seen}{also}: {cause}", "lost")


def stragglers(states: Mapping[int, ProgressState], name: Callable[[int], str]) -> str:
    """Everybody who is behind the others, and where: who has gone less far, else who is not waiting for anybody.

    Empty when none stands out.
    """
    least = min(progress_state.progress for progress_state in states.values())
    behind = {i: progress_state for i, progress_state in states.items() if progress_state.progress == least}
    if len(behind) == len(states):
        idle = {i: progress_state for i, progress_state in states.items() if not progress_state.waits}
        behind = idle if len(idle) < len(states) else {}
    named = [f"{name(i)} ({behind[i]})" for i in sorted(behind)[:MAX_NAMED]]
    return "; ".join(named) + (f"; and {len(behind) - MAX_NAMED} more" if len(behind) > MAX_NAMED else "")


def stalled(failure: Failure, states: Mapping[int, ProgressState], name: Callable[[int], str]) -> Failure:
    """The stall with everybody who is behind the others."""
    behind = stragglers(states, name)
    if behind:
        who = f"behind the others: {behind}"
    else:
        who = "no process is behind the others" + (
            f"; {name(failure.process)}: {states[failure.process]}" if failure.process in states else ""
        )
    return dataclasses.replace(failure, message=f"{failure.message}; {who}"[:MESSAGE_CHARACTERS])


def after(failure: Failure, name: Callable[[int], str]) -> tuple[int, str]:
    """Exit code and message of a process that ends because of a failure elsewhere.

    A code that decides about the next try is everybody's, whichever pod is looked at first; else this is a lost peer.
    """
    if failure.kind == "lost":
        return 1, f"lost {name(failure.process)}: {failure.message}"
    if failure.kind == "stalled":
        return ExitCode.STALLED, failure.message
    code = failure.code if failure.code in (*FATAL, ExitCode.STOPPED) else 1
    return code, f"ended with {name(failure.process)}, which was first: {failure.message}"
