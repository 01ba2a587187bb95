"""The rows of a unit in their shuffled order, without those that cannot be trained on, which are counted by cause."""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpujob_trainer.data.formats import RawRows
from tpujob_trainer.data.formats.webdataset import UNTAKEN
from tpujob_trainer.data.text.columns import KINDS, LEFT_OUT, Kind
from tpujob_trainer.storage.read_meter import METER
from tpujob_trainer.values.errors import ConfigurationError

logger = logging.getLogger(__name__)

_NAMED = 5
"""How many skipped rows of each cause are named in messages."""
_JUDGED_ROWS = 1000
"""Rows that are read before the fraction of skipped ones is checked."""


REMEDIES = {
    "special token in the text": "specialTokens: text takes it for characters, allow for the token",
    "refused by the chat template": "mend these conversations, or the template",
    "refused by the template": "a column it writes is null or missing; `default` or `if … is defined` allow for that",
    "assistant turns that the chat template rewrites": "mark them with {% generation %} in it, or set lossOn: all",
    "nothing in it to learn": "it has no assistant turn; lossOn: all learns all of it",
    "message with from and value": "give each a role and content, in the files or by a function in custom with lossOn",
    UNTAKEN.cause: "a name up to its first dot is the sample, the rest the field: write that in textColumn, or rename",
    "id outside of the vocabulary": "name the tokenizer that made the ids",
}
"""What to do about rows that are left out, by cause; keys are those of `spec.trainer.data`."""

_OF_ALL = {
    "null": "name the column that holds it",
    "empty": "name the column that holds it",
    "malformed": "write what the field asks for; in JSON, one object on each line, or an array of objects",
    "not UTF-8": "write the files as UTF-8",
}
"""What to do about data in which no row can be used, by the cause of most rows."""


def remedy_of_all(by_cause: Mapping[str, int]) -> str:
    """The end of a sentence about rows none of which can be used; causes with a remedy of their own have none."""
    remedy = _OF_ALL.get(max(by_cause, key=by_cause.__getitem__))
    return f"; {remedy}" if remedy else ""


def with_remedy(cause: str) -> str:
    """A cause, with a remedy if there is one."""
    if "strftime_now" in cause:
        return f"{cause} (it asks for today's date: write one as chatTemplateDate)"
    remedy = REMEDIES.get(cause) or REMEDIES.get(cause.partition(": ")[0])
    return f"{cause} ({remedy})" if remedy else cause


@dataclass(frozen=True)
class UnitRows:
    """Usable rows of a unit, in the order in which they are trained on."""

    column: Any
    """Arrow large_string of texts, or large_list of int32 tokens [usable rows], without nulls, a copy of its own."""
    numbers: np.ndarray
    """int64 [usable rows]: the place of each in the shuffled order of all rows of the unit."""
    originals: np.ndarray
    """int64 [usable rows]: the place of each in the unit, in the order of the file."""
    sizes: np.ndarray
    """int64 [usable rows]: approximate bytes of each; a token counts as four."""
    skipped: dict[str, np.ndarray] = field(default_factory=dict)
    """For each cause, the places in the file of the rows that are left out."""

    def split(self, count: int) -> tuple[UnitRows, UnitRows]:
        """The first rows, and the rest; both without `skipped`."""
        return (
            UnitRows(self.column[:count], self.numbers[:count], self.originals[:count], self.sizes[:count]),
            UnitRows(self.column[count:], self.numbers[count:], self.originals[count:], self.sizes[count:]),
        )


def usable_rows(raw: RawRows, order: np.ndarray, first: int, kind: Kind = KINDS["text"]) -> UnitRows:
    """The rows that can be trained on, in a shuffled order, starting at its row `first`.

    Args:
        raw: rows of the kind.
        order: int64 [rows]: which row is the n-th.
        first: how many rows of the order to leave out.
        kind: what the column holds, and how it becomes texts or tokens.
    """
    taken = order[first:]
    made = kind(raw.column, taken)
    causes = dict(made.skipped)
    for refusal, rows in raw.refused.items():
        refused = rows[taken]
        causes = {cause: others & ~refused for cause, others in causes.items()} | {refusal: refused}
    unusable = np.zeros(len(taken), dtype=bool)
    for rows in causes.values():
        unusable |= rows
    kept = np.flatnonzero(~unusable)
    column = made.take(kept)
    return UnitRows(
        column.column,
        kept + first,
        taken[kept],
        column.sizes,
        {cause: np.sort(taken[rows]) for cause, rows in causes.items() if rows.any()},
    )


class SkipCounts:
    """Counts of skipped rows by cause, with the names of the first ones."""

    def __init__(self, name_row: Callable[[int, int], str]) -> None:
        """Starts at zero; `name_row` gives the name of a row in messages, from its unit and its place there."""
        self.by_cause: collections.Counter[str] = collections.Counter()
        self.name_row = name_row
        self._named: dict[str, list[str]] = {}

    def count(self, unit: int, places: np.ndarray, cause: str) -> None:
        """Counts rows of a unit."""
        self.by_cause[cause] += len(places)
        named = self._named.setdefault(cause, [])
        named += [self.name_row(unit, int(place)) for place in places[: _NAMED - len(named)]]

    def summary(self) -> str:
        """The number of skipped rows of each cause, and the names of the first ones."""
        told = [
            f"{count} {with_remedy(cause)}: {', '.join(self._named[cause])}"
            f"{', …' if count > len(self._named[cause]) else ''}"
            for cause, count in sorted(self.by_cause.items())
        ]
        return "; ".join(told) or "no rows"


class SkippedRows(SkipCounts):
    """Counts of used and skipped rows, in all lanes of a process; fails when too many cannot be used."""

    def __init__(
        self, name_row: Callable[[int, int], str], *, max_fraction: float = 1.0, is_logged: bool = True
    ) -> None:
        """Starts to count at zero.

        Args:
            name_row: the name of a row in messages, from its unit and its place there.
            max_fraction: the largest fraction of all rows that may be skipped.
            is_logged: whether the first skipped rows are logged.
        """
        super().__init__(name_row)
        self.used = 0
        self._max_fraction = max_fraction
        self._reported = not is_logged

    @property
    def skipped(self) -> int:
        """The number of skipped rows, of all causes."""
        return self.by_cause.total()

    def add(self, unit: int, rows: UnitRows) -> None:
        """Counts the rows of a unit.

        Raises:
            ConfigurationError: more rows than allowed could not be used.
        """
        self.used += len(rows.numbers)
        METER.rows["used"] += len(rows.numbers)
        for cause, places in rows.skipped.items():
            self.count(unit, places, cause)
        self._judge()

    def add_refused(self, unit: int, places: np.ndarray, cause: str) -> None:
        """Counts rows as skipped that were counted as used.

        Raises:
            ConfigurationError: more rows than allowed could not be used.
        """
        self.used -= len(places)
        METER.rows["used"] -= len(places)
        self.count(unit, places, cause)
        self._judge()

    def count(self, unit: int, places: np.ndarray, cause: str) -> None:
        """Counts rows of a unit, in the metrics, too."""
        super().count(unit, places, cause)
        METER.rows[cause] += len(places)

    def _judge(self) -> None:
        unusable = self.skipped - self.by_cause[LEFT_OUT]
        total = self.used + unusable
        if unusable and not self._reported:
            self._reported = True
            logger.warning("Rows that cannot be used are left out: %s", self.summary())
        if total >= _JUDGED_ROWS and unusable > self._max_fraction * total:
            raise ConfigurationError(
                f"spec.trainer.data.maxSkippedFraction: {unusable} of the first {total} rows read here cannot be "
                f"used, more than {self._max_fraction:g} of them ({self.summary()}); mend the data, or raise the limit"
            )
