"""The messages between launchers: on each line one JSON object with one key, the kind."""

import json
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Tuple

from tpujob_contract.environment import DistributedProcess
from tpujob_contract.reports import in_place
from tpujob_contract.reports.first_end import ProcessEnd
from tpujob_contract.reports.termination_message import named_in
from tpujob_contract.typed import object_in

VERSION = 1
LINE_CHARACTERS = 500
"""Of a line in a log or an environment variable."""
END_CHARACTERS = 2000
"""Of the cause of an end: a termination message holds 4096 bytes, which include the name of the host."""
MOST_ATTEMPTS = 100_000
_LATEST = 2.0**33
"""Unix time, in the year 2242: a later time is invalid."""

HELLO, JOINED, PROGRESS, ASKED = "hello", "joined", "progress", "asked"
"""To launcher 0: who connects; the program waits for the others; its progress; it was asked to stop."""
ENDED, READY = "ended", "ready"
"""To launcher 0: the program failed; none of its processes is left."""
ROUND = "round"
"""From launcher 0: `Round.state`; `welcome` is set for a launcher that has just connected."""
HEARTBEAT, BYE = "heartbeat", "bye"
"""Both ways; the second when a program has ended without a failure, or a launcher 0 ends in order."""
FINISHED, STOPPING = "finished", "stopping"
"""Why a program has ended, in `BYE`: with 0; its container was asked to stop."""
FAILED, LOST, STALLED = "failed", "lost", "stalled"
"""Kinds of ends: a failure with a cause of its own; a process disappeared; no progress, noticed first by this one."""

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
    """Whether its container is gone and is replaced by another one."""

    def __str__(self) -> str:
        if self.is_lost:
            return f"process {self.process} lost its pod: {self.line}"
        cause = f": {self.line}" if self.line else ""
        return f"process {self.process} ended with exit code {self.code}{cause}"


@dataclass(frozen=True)
class Standpoint:
    """The state that a launcher reports to launcher 0, which may be a new one."""

    attempt: Optional[int]
    """The one in which its program runs, or ran last; None: its container is new, and no program has started."""
    account: in_place.Account
    """Of restarts in place."""
    lost_at: Optional[float] = None
    """Unix time at which it lost launcher 0."""


def hello(process: DistributedProcess, at: Optional[Standpoint] = None, host: str = "") -> Message:
    """The identity and state of the sender; another job, incarnation or restart of the JobSet gets no answer."""
    standpoint = {} if at is None else {"at": at.attempt, "account": at.account, "lost_at": at.lost_at}
    return HELLO, {
        **standpoint,
        **({"host": host} if host else {}),
        **({"secret": process.secret} if process.secret else {}),
        "version": VERSION,
        "job": process.owner,
        "incarnation": process.incarnation,
        "attempt": process.attempt,
        "process": process.process_id,
        "processes": process.num_processes,
    }


def another_release(name: str, version: int) -> str:
    """Why the launcher of the process with this name cannot take part: its messages have another version."""
    return (
        f"the launcher of {name} is of another release (its messages have version {version}, those of process 0 have "
        f"version {VERSION}), so these do not understand each other: all pods of a job need one image"
    )


def to_line(message: Message) -> bytes:
    """The message as one line."""
    kind, values = message
    return json.dumps({kind: values}).encode() + b"\n"


def parse(line: bytes) -> Optional[Message]:
    """The message in a line from the network; None: the line is not a message."""
    found = object_in(line)
    if len(found) != 1:
        return None
    ((kind, values),) = found.items()
    return (kind, values) if isinstance(values, dict) else None


def parse_end(process: int, values: Mapping[str, Any]) -> Optional[End]:
    """The end that a launcher reports of its program; None: the values are invalid."""
    code, line, kind = values.get("code"), values.get("line"), values.get("kind", FAILED)
    at = time_in(values, "at")
    if type(code) is not int or at is None or not isinstance(line, str) or kind not in (FAILED, LOST, STALLED):
        return None
    return End(process, code & 0xFF, at, printable(line, END_CHARACTERS), kind, values.get("lost") is True)


def parse_standpoint(values: Mapping[str, Any]) -> Standpoint:
    """The state of the launcher that sent a hello; without one, it is in its first attempt."""
    attempt = values.get("at", 0)
    return Standpoint(
        attempt=attempt if type(attempt) is int and 0 <= attempt <= MOST_ATTEMPTS else None if attempt is None else 0,
        account=in_place.checked(values.get("account")),
        lost_at=time_in(values, "lost_at"),
    )


def time_in(values: Mapping[str, Any], name: str) -> Optional[float]:
    """A Unix time; None: there is none."""
    at = values.get(name)
    # Compared before it is converted: an integer of 400 digits is too large for a float.
    is_number = isinstance(at, (int, float)) and not isinstance(at, bool)
    return float(at) if is_number and at is not None and 0 <= at < _LATEST else None


def printable(text: str, limit: int = LINE_CHARACTERS) -> str:
    """At most `limit` characters of a text; those that a line or an environment variable cannot hold become blanks."""
    return "".join(each if each.isprintable() else " " for each in text[:limit])


def known_of(end: End) -> ProcessEnd:
    """What launcher 0 knows about an end, for the judgement of which one was first."""
    names_another = named_in(end.line) not in (None, end.process)
    return ProcessEnd(end.code, end.at, names_another=names_another, is_lost=end.is_lost)


def values_of(end: End) -> Mapping[str, Any]:
    """What `end_in` reads."""
    values: Dict[str, Any] = {"process": end.process, "code": end.code, "at": end.at, "line": end.line}
    values.update({} if end.kind == FAILED else {"kind": end.kind})
    return {**values, "lost": True} if end.is_lost else values


def last_end(end: End, again: float) -> in_place.End:
    """The entry of the account for the end of an attempt; `again`: Unix time at which the next one starts."""
    cause = in_place.DISRUPTION if end.is_lost else in_place.cause_of(end.code)
    return {**values_of(end), "cause": cause, "at": round(end.at, 3), "again": round(again, 3)}  # type: ignore[typeddict-item]


def end_in(values: Mapping[str, Any], name: str) -> Optional[End]:
    """An end that launcher 0 names; None: it names none."""
    end = values.get(name)
    process = end.get("process") if isinstance(end, dict) else None
    return parse_end(process, end) if type(process) is int and isinstance(end, dict) else None


def attempt_in(values: Mapping[str, Any]) -> Optional[int]:
    """The number of an attempt in place; None: there is none."""
    attempt = values.get("attempt")
    return attempt if type(attempt) is int and attempt >= 0 else None
