"""Values that a user's process or pod supplies, made safe to keep: text, JSON, counts in labels."""

import json
import math
import re
from datetime import UTC, datetime
from typing import Any

from tpujob_contract.storage_address import redacted

LARGEST_COUNT_DIGITS = 9
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters other than tab and newline, and surrogates: a terminal interprets the former, and the API server
replaces the latter, so that a status would never equal what was written."""


def clean_text(value: Any, *, limit: int) -> str:
    """At most `limit` characters of a string, each of them printable, a tab or a newline; empty for anything else.

    Users, passwords and queries of addresses are removed: a program may print them, and more people can read statuses
    and Events than its spec.
    """
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", redacted(value)[:limit]) if isinstance(value, str) else ""


def parse_json(text: str | bytes) -> Any:
    """The decoded JSON.

    Raises:
        ValueError: it is not JSON, or nested too deeply to be read.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def parse_count(text: Any) -> int | None:
    """The number in a label's value, from 0; None: the value is something else."""
    if not isinstance(text, str) or len(text) > LARGEST_COUNT_DIGITS or not (text.isascii() and text.isdecimal()):
        return None
    return int(text)


def finite_number(value: Any) -> float | None:
    """A number in decoded JSON; None: the value is something else, or too large."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def non_negative(value: Any, *, below: float = 2**53) -> float | None:
    """A number from 0 in decoded JSON; None: the value is something else."""
    number = finite_number(value)
    return number if number is not None and 0 <= number < below else None


def whole_number(value: Any, *, below: float = 2**53) -> int | None:
    """The same, without its fraction."""
    number = non_negative(value, below=below)
    return None if number is None else int(number)


def read_time(value: Any) -> datetime | None:
    """A Unix time in decoded JSON; None: the value is something else."""
    seconds = non_negative(value, below=2**33)
    return datetime.fromtimestamp(seconds, UTC) if seconds else None
