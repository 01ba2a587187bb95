"""A span of time in the notations of users and of PromQL. Pure."""

from __future__ import annotations

import re
from datetime import timedelta

from tpujob.errors import CommandError

UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
LONGEST = timedelta(days=366)


def parse_span(text: str) -> timedelta:
    """The span that a text such as 7d, 12h or 2w means.

    Raises:
        CommandError: it has another form, or is longer than 366 days.
    """
    match = re.fullmatch(r"([1-9][0-9]{0,4})([hdw])", text)
    span = int(match[1]) * UNITS[match[2]] if match else None
    if span is None or span > LONGEST:
        raise CommandError(
            f"--since: {text!r} is not a span; write hours, days or weeks as in 12h, 7d or 2w, at most 366d"
        )
    return span


def of_promql(span: timedelta) -> str:
    """The span in PromQL's notation."""
    return f"{int(span.total_seconds()) // 3600}h"
