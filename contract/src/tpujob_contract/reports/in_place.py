"""Attempts in the same containers, as the launchers of a job tell of them: how each ended, counted by cause.

The account is a JSON object: `counts` has a number for each cause, `ends` the last of the attempts' ends. It is the
field `in_place` of a report, and a line of its own at the end of the termination message of every launcher: the one
whose program failed adds that program's last words.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Tuple, TypedDict

from tpujob_contract.exit_codes import ExitCode

CRASH, DISRUPTION, UNEXPLAINED = "crash", "disruption", "unexplained"
CAUSES = (CRASH, DISRUPTION, UNEXPLAINED)

PATH = "/in-place"
"""Where launcher 0 serves three fields of a report: `in_place_restarts`, `in_place_cause` and `in_place`."""

ALL_NEW = "all pods are new"
"""The line of an end after which no launcher of those before is left to tell of them."""

MOST_ENDS = 8
"""Whose details are kept, the last ones."""
MOST_BYTES = 1800
"""Of the line: the termination message has 4096, and the last attempt's words come first."""

PREFIX = "in place: "
_LINE = re.compile(rf"^{PREFIX}(\{{.*\}})$", re.MULTILINE)


class End(TypedDict, total=False):
    """How an attempt ended after which all programs started again; what is absent is not known."""

    number: int
    """From 1: the restart that followed."""
    cause: str
    process: int
    """Whose program was the first to fail."""
    code: int
    at: float
    """Unix time of the failure, on that process's host."""
    again: float
    """Unix time at which the programs started again."""
    line: str
    """The cause in one line."""
    step: int
    """Steps done, as far as process 0 has said at its end."""
    words: str
    """The last lines of the program that failed; from its own launcher alone."""


class _Account(TypedDict):
    counts: Dict[str, int]
    ends: List[End]


class Account(_Account, total=False):
    """What launchers tell of the attempts in these containers, and in those that took the place of one of them."""

    lead: str
    """Name of the pod in which launcher 0 was first: of all these containers, whichever tells."""


def cause_of(code: int) -> str:
    """What a restart in place after this exit code counts as."""
    return UNEXPLAINED if code == ExitCode.STOPPED else CRASH


def added(account: Account, end: End) -> Account:
    """The account with one more end."""
    counts = dict(account["counts"])
    counts[end["cause"]] = counts.get(end["cause"], 0) + 1
    numbered: End = {**end, "number": sum(counts.values())}
    return {**account, "counts": counts, "ends": [*account["ends"], numbered][-MOST_ENDS:]}


def checked(given: Any) -> Account:
    """The account in a message from the network; one that counts nothing where it is something else."""
    account: Account = {"counts": {}, "ends": []}
    counts, ends = (given.get("counts"), given.get("ends")) if isinstance(given, dict) else (None, None)
    if not isinstance(counts, dict) or not isinstance(ends, list):
        return account
    account["counts"] = {
        cause: counts[cause] for cause in CAUSES if type(counts.get(cause)) is int and 0 < counts[cause] < 2**20
    }
    # Of each end, what has the type that it should have: a report is made of it.
    for end in ends[-MOST_ENDS:] if account["counts"] else ():
        if isinstance(end, dict) and end.get("cause") in CAUSES and type(end.get("number")) is int:
            known = {name: end[name] for name in End.__annotations__ if isinstance(end.get(name), (int, float, str))}
            account["ends"].append(known)  # type: ignore[arg-type]
    if isinstance(given.get("lead"), str):
        account["lead"] = given["lead"][:253]
    return account


def line(account: Account, most_bytes: int = MOST_BYTES) -> str:
    """The line of a termination message; long words, and then the oldest ends, make room."""
    ends: List[Dict[str, Any]] = [dict(end) for end in account["ends"]]
    room = 400
    while True:
        text = PREFIX + json.dumps({**account, "ends": ends}, separators=(",", ":"))
        if len(text.encode()) <= most_bytes or not ends:
            return text
        if room > 50:
            room //= 2
            for end in ends:
                for name, kept in (("words", slice(-room, None)), ("line", slice(room))):
                    if isinstance(end.get(name), str):
                        end[name] = end[name][kept]
        else:
            del ends[0]


def split(termination_message: str) -> Tuple[str, Any]:
    """The message without the account, and the account as decoded; None: there is none.

    Written by a user's pod: what is decoded may be anything.
    """
    found = _LINE.findall(termination_message)
    if not found:
        return termination_message, None
    # The launcher's is the last; a program may have printed others.
    return _LINE.sub("", termination_message).strip(), parse(found[-1])


def parse(text: str) -> Any:
    """The account in JSON; None where it is none at all."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
