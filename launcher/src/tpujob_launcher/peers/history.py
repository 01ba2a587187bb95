"""What this launcher tells of the attempts that ended in its container, for the report and the termination message."""

from __future__ import annotations

import json
from typing import Optional

from tpujob_contract.reports import in_place
from tpujob_contract.reports.report import split_final_report
from tpujob_launcher.peers.messages import End

WORDS_CHARACTERS = 400
"""Of the last lines of a program that failed."""


class History:
    """Of one container, from its first attempt on."""

    def __init__(self, process: int) -> None:
        """Nothing has ended yet. `process`: this launcher's."""
        self._process = process
        self.account: in_place.Account = {"counts": {}, "ends": []}
        """All of it."""

    def lead(self, pod: str) -> None:
        """Names these containers after the pod of the first launcher 0."""
        self.account["lead"] = pod

    def take(self, account: in_place.Account) -> None:
        """What another launcher knows, where that is newer."""
        more = sum(account["counts"].values()) - sum(self.account["counts"].values())
        if more > 0 or (more == 0 and "lead" in account and "lead" not in self.account):
            self.account = account

    def add(self, end: Optional[End], *, message: str, output: str, now: float) -> None:
        """An attempt has ended by this cause, as launcher 0 has found it, and the next one begins at this Unix time.

        This launcher's program has left a termination message, and the end of what it printed.
        """
        if end is None:
            return
        said: in_place.End = {
            "cause": in_place.DISRUPTION if end.is_lost else in_place.cause_of(end.code),
            "process": end.process,
            "code": end.code,
            "at": round(end.at, 3),
            "again": round(now, 3),
            "line": end.line,
        }
        words, report = split_final_report(message)
        step = _step(report) if self._process == 0 else None
        if step is not None:
            said["step"] = step
        if end.process == self._process and (left := (words or output).strip()):
            said["words"] = left[-WORDS_CHARACTERS:]
        self.account = in_place.added(self.account, said)

    @property
    def json(self) -> str:
        """The account for the next program."""
        return json.dumps(self.account)

    @property
    def line(self) -> str:
        """The account for the termination message; empty while there was one attempt alone."""
        return in_place.line(self.account) if self.account["counts"] else ""


def _step(report: Optional[str]) -> Optional[int]:
    try:
        step = json.loads(report or "{}").get("step")
    except (ValueError, AttributeError, RecursionError):
        return None
    return step if type(step) is int else None
