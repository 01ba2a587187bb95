"""What is said of rows that cannot be used, and when they are too many."""

import logging

import numpy as np
import pytest

from tpujob_trainer.data.stream import rows as rows_module
from tpujob_trainer.data.stream.rows import SkippedRows
from tpujob_trainer.values.errors import ConfigurationError

JUDGED = 1000
"""Rows that must have been read before their share is judged."""


def skipped(fraction: float = 1.0) -> SkippedRows:
    return SkippedRows(lambda unit, place: f"{unit}:{place}", max_fraction=fraction)


def refuse(found: SkippedRows, count: int, *, used: int = 0, cause: str = "null") -> None:
    found.used += used + count
    found.add_refused(7, np.arange(count), cause)


def test_rows_are_judged_from_a_thousand_on() -> None:
    assert rows_module._JUDGED_ROWS == JUDGED
    refuse(skipped(0.1), 500, used=JUDGED - 501)
    with pytest.raises(ConfigurationError, match=f"500 of the first {JUDGED} rows"):
        refuse(skipped(0.1), 500, used=JUDGED - 500)


def test_share_that_is_allowed_is_allowed() -> None:
    refuse(skipped(0.1), 100, used=900)
    with pytest.raises(ConfigurationError, match=r"more than 0\.1"):
        refuse(skipped(0.1), 101, used=899)


def test_refused_rows_are_no_longer_used() -> None:
    found = skipped()
    refuse(found, 3, used=5)
    assert (found.used, found.skipped) == (5, 3)


def test_first_rows_of_each_cause_are_named() -> None:
    found = skipped()
    refuse(found, rows_module._NAMED - 1)
    refuse(found, 4)
    refuse(found, 1, cause="empty")
    named = ", ".join(f"7:{place}" for place in [*range(rows_module._NAMED - 1), 0])
    assert found.summary() == f"1 empty: 7:0; {rows_module._NAMED + 3} null: {named}, …"


def test_exactly_as_many_as_are_named_have_no_ellipsis() -> None:
    found = skipped()
    refuse(found, rows_module._NAMED)
    assert not found.summary().endswith("…")
    assert skipped().summary() == "no rows"


def test_warning_comes_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    found = skipped()
    refuse(found, 0, used=2)
    assert not caplog.records
    refuse(found, 1)
    refuse(found, 1)
    assert len(caplog.records) == 1
