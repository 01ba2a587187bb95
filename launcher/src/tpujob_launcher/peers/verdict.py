"""Which process ended an attempt, and the exit code and message of every other one. Pure.

Launcher 0 decides: it has the progress of every process, and receives every end.
"""

from dataclasses import dataclass, replace
from typing import Any, Callable, Collection, Dict, Mapping, Sequence, Tuple

from tpujob_contract.exit_codes import FATAL, ExitCode, describe
from tpujob_contract.process_ids import MAX_NAMED, listed, process_name
from tpujob_contract.reports.progress_state import ProgressState
from tpujob_launcher.peers.messages import END_CHARACTERS, LOST, STALLED, End

ENDING_PHASES = ("failed", "stopping", "finished")
"""Phases in which processes no longer take steps together."""

Name = Callable[[int], str]
"""Names a process by its number and host."""


def lost(processes: Collection[int], name: Name, at: float, *, silent_seconds: float = 0.0) -> End:
    """The end of processes that disappeared without reporting one.

    Args:
        processes: At least one.
        name: Names a process.
        at: Unix time.
        silent_seconds: How long nothing came from them; 0 where the connection broke.
    """
    first, *rest = sorted(processes)
    seen = f"silent for {silent_seconds:.0f} s" if silent_seconds else "its connection broke"
    also = f" (and so {listed([name(i) for i in rest])})" if rest else ""
    cause = (
        "it hangs, or its machine or network is gone"
        if silent_seconds
        else "it was killed or crashed; the exit code and the log of its pod have the cause"
    )
    return End(first, 1, at, f"{seen}{also}: {cause}", LOST)


def stragglers(states: Mapping[int, ProgressState], name: Name) -> str:
    """The processes behind the others, with their progress: the least advanced, else those that wait for no peer.

    Empty when none stands out.
    """
    least = min(state.progress for state in states.values())
    behind = {i: state for i, state in states.items() if state.progress == least}
    if len(behind) == len(states):
        idle = {i: state for i, state in states.items() if not state.waits}
        behind = idle if len(idle) < len(states) else {}
    named = [f"{name(i)} ({behind[i]})" for i in sorted(behind)[:MAX_NAMED]]
    return "; ".join(named) + (f"; and {len(behind) - MAX_NAMED} more" if len(behind) > MAX_NAMED else "")


def stalled(end: End, states: Mapping[int, ProgressState], name: Name) -> End:
    """The stall, with the processes that are behind the others in its line."""
    behind = stragglers(states, name) if states else ""
    if behind:
        who = f"behind the others: {behind}"
    else:
        who = "no process is behind the others" + (
            f"; {name(end.process)}: {states[end.process]}" if end.process in states else ""
        )
    return replace(end, line=f"{end.line}; {who}"[:END_CHARACTERS])


def after(end: End, host: str, asked: str) -> Tuple[int, str]:
    """Exit code and message of a process that ends because of an end elsewhere.

    A code that decides about the next attempt is passed on to all, so that any pod shows it; other codes become 1.

    Args:
        end: The first.
        host: Its host; may be empty.
        asked: Which process was asked to stop; empty: none is known.
    """
    name = process_name(end.process, host)
    if end.kind == STALLED:
        return ExitCode.STALLED, end.line
    if end.kind == LOST:
        message = f"lost {name}: {end.line}"
        # It was probably killed at the end of its grace period, which is no charged retry.
        return (ExitCode.STOPPED, f"asked to stop ({asked}), and {message}") if asked else (1, message)
    code = end.code if end.code in (*FATAL, ExitCode.STOPPED) else 1
    why = end.line or f"exit code {describe(end.code)}"
    return code, f"ended with {name}, which was first: {why}"


def missing(positions: Sequence[str], here: Collection[int], limit_seconds: float) -> str:
    """The sentence that names each process that did not come. `positions[i]` says where process i should be."""
    absent = [f"process {i} ({positions[i]})" for i in range(len(positions)) if i not in here]
    return (
        f"{len(absent)} of {len(positions)} processes did not come within {limit_seconds:g} s: {listed(absent)}; "
        "see whether their pods are scheduled, whether their logs end before this, and whether they have the image of "
        "process 0"
    )


@dataclass(frozen=True)
class Program:
    """What a program reports about itself."""

    process: int
    host: str
    configuration: str
    """Hash of the configuration that it was given."""
    versions: Dict[str, str]


def program(process: int, host: str, values: Mapping[str, Any]) -> Program:
    """A program by its message."""
    given = values.get("versions")
    versions = {str(k): str(v) for k, v in given.items()} if isinstance(given, dict) else {}
    return Program(process, host, str(values.get("configuration")), versions)


def disagreement(one: Program, own: Program) -> str:
    """A sentence with the differences between what `one` and process 0 run; empty: there are none."""
    pair = f"process {one.process} on host {one.host} and process {own.process} on host {own.host}"
    if one.configuration != own.configuration:
        return (
            f"{pair} have different configurations ({one.configuration} and {own.configuration}); "
            "all processes of a run must be given the same TPUJOB_CONFIG"
        )
    differ = [
        f"{name} {one.versions.get(name, 'none')} and {own.versions.get(name, 'none')}"
        for name in sorted(one.versions.keys() | own.versions.keys())
        if one.versions.get(name) != own.versions.get(name)
    ]
    if not differ:
        return ""
    return (
        f"{pair} have different versions: {', '.join(differ)}; all processes of a run must use the same image; "
        "name it by digest, for a tag may have moved between two pulls"
    )
