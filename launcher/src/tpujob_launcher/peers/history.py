"""The account of the attempts that ended in this container, for the report and the termination message."""

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
        """Starts empty. `process`: this launcher's."""
        self._process = process
        self.account: in_place.Account = {"counts": {}, "ends": []}
        """Counts by cause, and the last ends."""

    def lead(self, pod: str) -> None:
        """Names these containers after the pod of the first launcher 0."""
        self.account["lead"] = pod

    def take(self, account: in_place.Account) -> None:
        """Takes over the account of another launcher if it is newer."""
        more = sum(account["counts"].values()) - sum(self.account["counts"].values())
        if more > 0 or (more == 0 and "lead" in account and "lead" not in self.account):
            self.account = account

    def add(self, end: Optional[End], *, message: str, output: str, now: float) -> None:
        """Adds the end of an attempt.

        Args:
            end: Its cause, as launcher 0 has determined it; None: it named none, and nothing is added.
            message: The termination message of this launcher's program.
            output: The last lines of that program's output.
            now: Unix time at which the next attempt starts.
        """
        if end is None:
            return
        entry: in_place.End = {
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
            entry["step"] = step
        if end.process == self._process and (left := (words or output).strip()):
            entry["words"] = left[-WORDS_CHARACTERS:]
        self.account = in_place.added(self.account, entry)

    @property
    def json(self) -> str:
        """The account for the next program."""
        return json.dumps(self.account)

    @property
    def line(self) -> str:
        """The account for the termination message; empty during the first attempt."""
        return in_place.line(self.account) if self.account["counts"] else ""


def _step(report: Optional[str]) -> Optional[int]:
    try:
        step = json.loads(report or "{}").get("step")
    except (ValueError, AttributeError, RecursionError):
        return None
    return step if type(step) is int else None
