"""When the attempt after a fault began and made its first step, from the stamped lines of process 0's log. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

BEGINS = re.compile(r"tpujob launch: (process 0 of \d+ of |attempt \d+ in the same containers)")


@dataclass(frozen=True)
class Recovery:
    """Seconds from a fault to the next step."""

    until_start: float
    """To the start of the next attempt's program in process 0: what launchers and Kubernetes cost."""
    own: float
    """From there to its first finished step: imports, the meeting, restore, compilation."""

    @property
    def total(self) -> float:
        """From the fault to the step."""
        return self.until_start + self.own


def first_start(lines: Iterable[tuple[float, str]], step: re.Pattern[str]) -> Recovery | None:
    """Of an attempt that nothing preceded: its own start alone."""
    return recovery(lines, step, float("-inf"))


def recovery(lines: Iterable[tuple[float, str]], step: re.Pattern[str], fault: float) -> Recovery | None:
    """What a fault costs; None while no step is finished after it in a new attempt.

    Args:
        lines: Unix time and text, in order.
        step: What a line of a finished step has.
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
