"""What launchers say to each other: one JSON object with one key on each line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Tuple

from tpujob_contract.environment import DistributedProcess
from tpujob_contract.reports import in_place

VERSION = 1
LINE_CHARACTERS = 500
"""Of the cause of an end, where an account of attempts has it."""
END_CHARACTERS = 2000
"""Of the cause of an end: a termination message holds 4096 bytes, and has to hold the name of the host too."""
MOST_ATTEMPTS = 100_000
_LATEST = 2.0**33
"""Unix time, in the year 2242: what is not below it, or is not a number, is no time."""

HELLO, ENDED, FINISHED, STOPPING, READY = "hello", "ended", "finished", "stopping", "ready"
"""To launcher 0: who speaks; the program failed; it ended with 0; asked to stop; nothing of the program is left."""
HERE, STATE = "here", "state"
"""To launcher 0, of a program that speaks with its launcher: it waits for the others; how far it has come."""
WELCOME, RESTART, GO, OVER = "welcome", "restart", "go", "over"
"""From launcher 0: where the job is; end the program; start it again; no more attempts in these containers."""
MET, REFUSED, END = "met", "refused", "end"
"""From launcher 0: all programs are there; why they will not be; which program was the first to end."""
BEAT, ASKED, BYE = "beat", "asked", "bye"
"""Both ways: a sign of life; who was asked to stop; the last word of a launcher that ends in order."""
FAILED, LOST, STALLED = "failed", "lost", "stalled"
"""Kinds of ends: with a cause of its own; without a word; without progress, as this process was the first to notice."""

Message = Tuple[str, Mapping[str, Any]]
"""A kind and its values."""


@dataclass(frozen=True)
class End:
    """The end of a program that did not finish."""

    process: int
    code: int
    """As a shell counts it."""
    at: float
    """Unix time on its host."""
    line: str
    """The cause in one line."""
    kind: str = FAILED
    is_lost: bool = False
    """Whether its container went, and another one takes its place."""

    def __str__(self) -> str:
        if self.is_lost:
            return f"process {self.process} lost its pod: {self.line}"
        cause = f": {self.line}" if self.line else ""
        return f"process {self.process} ended with exit code {self.code}{cause}"


@dataclass(frozen=True)
class Standpoint:
    """Where a launcher is, as it tells launcher 0, which may be a new one."""

    attempt: Optional[int]
    """In which its program runs, or ran last; None: it is in a new container and has started none."""
    account: in_place.Account
    """What it knows of the attempts that have ended."""
    lost_at: Optional[float] = None
    """Unix time at which it lost launcher 0."""


def hello(process: DistributedProcess, at: Optional[Standpoint] = None, host: str = "") -> Message:
    """Who speaks, and where it is; another job, incarnation or restart of the JobSet gets no answer."""
    standpoint = {} if at is None else {"at": at.attempt, "account": at.account, "lost_at": at.lost_at}
    return HELLO, {
        **standpoint,
        **({"host": host} if host else {}),
        "version": VERSION,
        "job": process.owner,
        "incarnation": process.incarnation,
        "attempt": process.attempt,
        "process": process.process_id,
        "processes": process.num_processes,
    }


def another_release(name: str, version: int) -> str:
    """Why the launcher of a process, by the process's name, cannot take part: it speaks another version."""
    return (
        f"the launcher of {name} is of another release (its messages have version {version}, those of process 0 have "
        f"version {VERSION}), so these do not understand each other: all pods of a job need one image"
    )


def to_line(message: Message) -> bytes:
    """The message as one line."""
    kind, values = message
    return json.dumps({kind: values}).encode() + b"\n"


def parse(line: bytes) -> Optional[Message]:
    """The message in a line from the network; None where it is something else."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or len(said) != 1:
        return None
    ((kind, values),) = said.items()
    return (kind, values) if isinstance(values, dict) else None


def parse_end(process: int, values: Mapping[str, Any]) -> Optional[End]:
    """The end that a launcher reports of its program; None where it is something else."""
    code, line, kind = values.get("code"), values.get("line"), values.get("kind", FAILED)
    at = _time_in(values, "at")
    if type(code) is not int or at is None or not isinstance(line, str) or kind not in (FAILED, LOST, STALLED):
        return None
    return End(process, code & 0xFF, at, printable(line, END_CHARACTERS), kind, values.get("lost") is True)


def parse_standpoint(values: Mapping[str, Any]) -> Standpoint:
    """Where the launcher is that says hello; one of an earlier release runs its first attempt."""
    attempt = values.get("at", 0)
    return Standpoint(
        attempt=attempt if type(attempt) is int and 0 <= attempt <= MOST_ATTEMPTS else None if attempt is None else 0,
        account=in_place.checked(values.get("account")),
        lost_at=_time_in(values, "lost_at"),
    )


def _time_in(values: Mapping[str, Any], name: str) -> Optional[float]:
    at = values.get(name)
    # Compared before it is converted: an integer of 400 digits is too large for a float.
    is_number = isinstance(at, (int, float)) and not isinstance(at, bool)
    return float(at) if is_number and at is not None and 0 <= at < _LATEST else None


def printable(text: str, limit: int = LINE_CHARACTERS) -> str:
    """At most `limit` characters of a text, each of which an environment variable and a line can have."""
    return "".join(each if each.isprintable() else " " for each in text[:limit])


def values_of(end: End) -> Mapping[str, Any]:
    """What `end_in` reads."""
    said: Dict[str, Any] = {"process": end.process, "code": end.code, "at": end.at, "line": end.line}
    return said if end.kind == FAILED else {**said, "kind": end.kind}


def end_in(values: Mapping[str, Any]) -> Optional[End]:
    """The end that launcher 0 takes for the cause; None where it names none."""
    end = values.get("end")
    process = end.get("process") if isinstance(end, dict) else None
    return parse_end(process, end) if type(process) is int and isinstance(end, dict) else None


def attempt_in(values: Mapping[str, Any]) -> Optional[int]:
    """The number of an attempt in place; None where there is none."""
    attempt = values.get("attempt")
    return attempt if type(attempt) is int and attempt >= 0 else None
