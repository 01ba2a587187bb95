"""The launchers' account of attempts in the same containers: how each ended, counted by cause.

The account is a JSON object: `counts` has a number for each cause, `ends` the last ends. It is the field `in_place` of
a report, and the last line of each launcher's termination message; the launcher whose program failed adds the last
lines of that program.
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
"""The line of an end after which all launchers are new, and none knows how the pods before ended."""

MOST_ENDS = 8
"""How many ends keep their details; the last ones do."""
MOST_BYTES = 1800
"""Of the line: the termination message has 4096, and the last lines of the last attempt come first."""

PREFIX = "in place: "
_LINE = re.compile(rf"^{PREFIX}(\{{.*\}})$", re.MULTILINE)


class End(TypedDict, total=False):
    """The end of an attempt after which all programs started again; absent fields are unknown."""

    number: int
    """Of the restart that followed, from 1."""
    cause: str
    process: int
    """The process whose program failed first."""
    code: int
    at: float
    """Unix time of the failure, on that process's host."""
    again: float
    """Unix time at which the programs started again."""
    line: str
    """The cause in one line."""
    step: int
    """Steps done, as process 0 reported at its end."""
    words: str
    """The last lines of the program that failed; only its own launcher has them."""


class _Account(TypedDict):
    counts: Dict[str, int]
    ends: List[End]


class Account(_Account, total=False):
    """The account of the attempts in a set of containers, which includes replacements of lost ones."""

    lead: str
    """Name of the first pod of launcher 0, which identifies the set."""


def cause_of(code: int) -> str:
    """The cause of a restart in place after this exit code."""
    return UNEXPLAINED if code == ExitCode.STOPPED else CRASH


def added(account: Account, end: End) -> Account:
    """The account with one more end."""
    counts = dict(account["counts"])
    counts[end["cause"]] = counts.get(end["cause"], 0) + 1
    numbered: End = {**end, "number": sum(counts.values())}
    return {**account, "counts": counts, "ends": [*account["ends"], numbered][-MOST_ENDS:]}


def checked(given: Any) -> Account:
    """The account in a message from the network; an empty one if the message is invalid."""
    account: Account = {"counts": {}, "ends": []}
    counts, ends = (given.get("counts"), given.get("ends")) if isinstance(given, dict) else (None, None)
    if not isinstance(counts, dict) or not isinstance(ends, list):
        return account
    account["counts"] = {
        cause: counts[cause] for cause in CAUSES if type(counts.get(cause)) is int and 0 < counts[cause] < 2**20
    }
    # Of each end, the fields with valid types: a report is made of them.
    for end in ends[-MOST_ENDS:] if account["counts"] else ():
        if isinstance(end, dict) and end.get("cause") in CAUSES and type(end.get("number")) is int:
            known = {name: end[name] for name in End.__annotations__ if isinstance(end.get(name), (int, float, str))}
            account["ends"].append(known)  # type: ignore[arg-type]
    if isinstance(given.get("lead"), str):
        account["lead"] = given["lead"][:253]
    return account


def line(account: Account, most_bytes: int = MOST_BYTES) -> str:
    """The line of a termination message; to fit, long texts are cut, then the oldest ends are dropped."""
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
    """The message without the account, and the decoded account; None: there is none.

    A user's pod writes it: the decoded value may be anything.
    """
    found = _LINE.findall(termination_message)
    if not found:
        return termination_message, None
    # The launcher's line is the last; a program may have printed others.
    return _LINE.sub("", termination_message).strip(), parse(found[-1])


def parse(text: str) -> Any:
    """The decoded JSON text; None: it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
