"""The times of the start and first step after a fault, from process 0's log lines with timestamps. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

BEGINS = re.compile(r"tpujob launch: (process 0 of \d+ of |attempt \d+ in the same containers)")


@dataclass(frozen=True)
class Recovery:
    """Seconds from a fault to the next step."""

    until_start: float
    """To the start of the next attempt's program in process 0: the cost of launchers and Kubernetes."""
    own: float
    """From there to its first finished step: imports, rendezvous, restore, compilation."""

    @property
    def total(self) -> float:
        """The seconds from the fault to the step."""
        return self.until_start + self.own


def first_start(lines: Iterable[tuple[float, str]], step: re.Pattern[str]) -> Recovery | None:
    """The start of the first attempt, of which only `own` counts; None: no step is finished yet."""
    return recovery(lines, step, float("-inf"))


def recovery(lines: Iterable[tuple[float, str]], step: re.Pattern[str], fault: float) -> Recovery | None:
    """The cost of a fault; None: no step of a new attempt is finished yet.

    Args:
        lines: Unix time and text, in order.
        step: Matches the line of a finished step.
        fault: Unix time.
    """
    began: float | None = None
    for at, line in lines:
        if at <= fault:
            continue
        if BEGINS.search(line):
            began = at
        elif began is not None and step.search(line):
            return Recovery(began - fault if fault > 0 else 0.0, at - began)
    return None
