"""The launchers' account of restarts in the same containers: counters by cause that only grow, and the last end.

Launcher 0 counts; the others have its account, and a replaced launcher 0 continues the largest of theirs. The account
is a JSON object: the field `in_place` of a report, and the last line of each launcher's termination message.
"""

import json
import re
from typing import Any, Dict, Tuple, TypedDict

from tpujob_contract.exit_codes import ExitCode
from tpujob_contract.typed import object_in, typed

CRASH, DISRUPTION, UNEXPLAINED = "crash", "disruption", "unexplained"
CAUSES = (CRASH, DISRUPTION, UNEXPLAINED)

PATH = "/in-place"
"""Where launcher 0 serves three fields of a report: `in_place_restarts`, `in_place_cause` and `in_place`."""

ALL_NEW = "all pods are new"
"""The line of an end after which all launchers are new, and none knows how the pods before ended."""

MOST_BYTES = 1800
"""Of the line: the termination message has 4096, and the last lines of the last attempt come first."""
NAME_CHARACTERS = 253
"""Of a pod."""

PREFIX = "in place: "
_LINE = re.compile(rf"^{PREFIX}(\{{.*\}})$", re.MULTILINE)


class End(TypedDict, total=False):
    """The end of an attempt after which all programs started again; absent fields are unknown."""

    cause: str
    process: int
    """The process whose program failed first."""
    code: int
    at: float
    """Unix time of the failure, on that process's host."""
    again: float
    """Unix time at which the programs started again, on the host of launcher 0."""
    line: str
    """The cause in one line."""
    kind: str
    lost: bool
    """Whether the container of that process is gone."""
    step: int
    """Steps done, as process 0 reported at its end; only its own launcher has them."""
    words: str
    """The last lines of the program that failed; only its own launcher has them."""


class Account(TypedDict, total=False):
    """How often all programs have started again in a set of containers, which includes replacements of lost ones."""

    counts: Dict[str, int]
    """By cause; only grows."""
    lead: str
    """Name of the pod of launcher 0 at the first of these restarts, which identifies the set."""
    last: End


def cause_of(code: int) -> str:
    """The cause of a restart in place after this exit code."""
    return UNEXPLAINED if code == ExitCode.STOPPED else CRASH


def total(account: Account) -> int:
    """How often all programs have started again."""
    return sum(account.get("counts", {}).values())


def larger(known: Account, other: Account) -> Account:
    """The account that counts more restarts; of equals the known one."""
    return other if total(other) > total(known) else known


def added(account: Account, end: End) -> Account:
    """The account with one more end."""
    counts = dict(account.get("counts", {}))
    counts[end["cause"]] = counts.get(end["cause"], 0) + 1
    return {**account, "counts": counts, "last": end}


def checked(given: Any) -> Account:
    """The account in a message from the network; an empty one if the message is invalid."""
    counts = given.get("counts") if isinstance(given, dict) else None
    if not isinstance(counts, dict):
        return {}
    account: Account = {
        "counts": {
            cause: counts[cause] for cause in CAUSES if type(counts.get(cause)) is int and 0 < counts[cause] < 2**20
        }
    }
    if isinstance(given.get("lead"), str):
        account["lead"] = given["lead"][:NAME_CHARACTERS]
    last = given.get("last")
    if isinstance(last, dict) and last.get("cause") in CAUSES:
        account["last"] = typed(last, End)  # type: ignore[typeddict-item]
    return account if account["counts"] else {}


def line(account: Account) -> str:
    """The line of a termination message, in which long texts are cut; empty before the first restart."""
    if not total(account):
        return ""
    last: Dict[str, Any] = dict(account.get("last", {}))
    room = 400
    while True:
        text = PREFIX + json.dumps({**account, "last": last}, separators=(",", ":"))
        if len(text.encode()) <= MOST_BYTES or not room:
            return text
        room //= 2
        for name, kept in (("words", slice(-room, None) if room else slice(0)), ("line", slice(room))):
            if isinstance(last.get(name), str):
                last[name] = last[name][kept]


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
    """The decoded JSON text; None: it is no object."""
    return object_in(text) or None
