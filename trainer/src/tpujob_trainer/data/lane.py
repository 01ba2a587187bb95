"""One lane: an endless stream of documents, cut into windows, with a position that fits into six numbers.

Documents stand one after the other, each between its own bos and eos. A window of sequence length S has S + 1 tokens;
the next one begins with the last token of this one, so that each token but the very first is predicted once. What is
left of a document goes into the next window: nothing is carried along but the position of its first token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tpujob_trainer.data.plan import LanePlan
from tpujob_trainer.data.rows import RowCounts, UnitRows
from tpujob_trainer.data.tokenizer import Tokenizer
from tpujob_trainer.errors import ConfigurationError

StartRead = Callable[[int, int, int], Callable[[], UnitRows]]
"""Begins to read rows of a unit (its number, the epoch, how many of its order to leave out); returns the wait."""

_MOST_EMPTY_UNITS = 1000


@dataclass(frozen=True)
class LanePosition:
    """Where the next window of a lane begins, and what it has delivered so far."""

    epoch: int = 0
    unit: int = 0
    """Index among the lane's units of this epoch."""
    row: int = 0
    """Index in the shuffled order of the unit's rows."""
    token: int = 0
    """Tokens of that row's document that come before."""
    batches: int = 0
    """Batches delivered."""
    digest: int = 0
    """64 bits over all tokens delivered, in order."""


@dataclass(frozen=True)
class Windows:
    """The rows of a global batch that one lane fills; int32 [rows per lane, sequence length] but for the mask."""

    inputs: np.ndarray
    targets: np.ndarray
    segment_ids: np.ndarray
    positions: np.ndarray
    loss_mask: np.ndarray
    """bool"""


@dataclass
class _Buffer:
    """Tokens ahead of the position, and which document each comes from."""

    tokens: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    starts: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """int64 [documents]: index of the first token of each; the first one's may be negative."""
    origins: np.ndarray = field(default_factory=lambda: np.empty((0, 3), dtype=np.int64))
    """int64 [documents, 3]: epoch, unit, row."""


class Lane:
    """The windows of one lane, from a position on."""

    def __init__(
        self,
        plan: LanePlan,
        number: int,
        *,
        tokenizer: Tokenizer,
        sequence_length: int,
        start_read: StartRead,
        position: LanePosition = LanePosition(),
        counts: RowCounts | None = None,
    ) -> None:
        self.position = position
        self._plan = plan
        self._number = number
        self._tokenizer = tokenizer
        self._length = sequence_length
        self._start_read = start_read
        self._counts = counts if counts is not None else RowCounts()
        self._wanted = plan.rows_per_lane * sequence_length + 1
        self._buffer = _Buffer()
        self._drop_tokens = position.token
        self._cursor = (position.epoch, position.unit)
        self._pending = start_read(self._unit_at(self._cursor), position.epoch, position.row)
        self._texts: Any = pa.array([], pa.large_string())
        self._rows = np.empty(0, dtype=np.int64)
        self._unit_read = self._cursor
        self._empty_units: list[int] = []

    def next_windows(self) -> Windows:
        """The lane's rows of the next batch; `position` moves behind them."""
        while len(self._buffer.tokens) < self._wanted:
            self._fill()
        tokens, starts = self._buffer.tokens[: self._wanted], self._buffer.starts
        windows = cut_windows(tokens, starts, self._plan.rows_per_lane, self._length)
        self._consume()
        return windows

    def _consume(self) -> None:
        buffer, taken = self._buffer, self._wanted - 1
        document = int(np.searchsorted(buffer.starts, taken, side="right")) - 1
        epoch, unit, row = (int(value) for value in buffer.origins[document])
        self.position = replace(
            self.position,
            epoch=epoch,
            unit=unit,
            row=row,
            token=taken - int(buffer.starts[document]),
            batches=self.position.batches + 1,
            digest=_chain(self.position.digest, buffer.tokens[: self._wanted]),
        )
        self._buffer = _Buffer(buffer.tokens[taken:], buffer.starts[document:] - taken, buffer.origins[document:])

    def _fill(self) -> None:
        """Tokenise some more rows."""
        while not len(self._rows):
            self._next_unit()
        take = self._rows_to_take()
        tokens, lengths = self._tokenizer.documents(self._texts.slice(0, take))
        origins = np.empty((take, 3), dtype=np.int64)
        origins[:, :2] = self._unit_read
        origins[:, 2] = self._rows[:take]
        self._texts, self._rows = self._texts.slice(take), self._rows[take:]
        starts = np.cumsum(lengths) - lengths - self._drop_tokens
        tokens, self._drop_tokens = tokens[self._drop_tokens :], 0
        buffer = self._buffer
        self._buffer = _Buffer(
            np.concatenate([buffer.tokens, tokens]),
            np.concatenate([buffer.starts, starts + len(buffer.tokens)]),
            np.concatenate([buffer.origins, origins]),
        )

    def _rows_to_take(self) -> int:
        """Rows to tokenise at once: about four batches of text, so that little is held and little done twice."""
        target = min(max(8 * self._wanted, 64 << 10), 1 << 20)
        sizes = pc.binary_length(self._texts.slice(0, 4096)).to_numpy()
        return int(np.searchsorted(np.cumsum(sizes), target)) + 1 if sizes.sum() > target else len(sizes)

    def _next_unit(self) -> None:
        """Take the unit that was being read, and begin to read the one after it."""
        unit, self._unit_read = self._unit_at(self._cursor), self._cursor
        read = self._pending()
        self._cursor = self._after(self._cursor)
        self._pending = self._start_read(self._unit_at(self._cursor), self._cursor[0], 0)
        self._texts, self._rows = read.texts, read.numbers
        self._counts.add(read.counts)
        self._require_text(unit)

    def _require_text(self, unit: int) -> None:
        if len(self._rows):
            self._empty_units.clear()
            return
        self._empty_units.append(unit)
        seen = len(self._empty_units)
        if seen >= _MOST_EMPTY_UNITS or len(set(self._empty_units)) == self._plan.num_units:
            raise ConfigurationError(
                f"spec.trainer.data.textColumn: no usable text in {seen} units of rows, one after the other "
                f"({self._counts.null} rows null, {self._counts.empty} empty, {self._counts.invalid} not UTF-8); "
                "name the column that holds the text"
            )

    def _unit_at(self, cursor: tuple[int, int]) -> int:
        return self._plan.unit(self._number, *cursor)

    def _after(self, cursor: tuple[int, int]) -> tuple[int, int]:
        epoch, index = cursor
        return (epoch, index + 1) if index + 1 < self._plan.units_in(self._number) else (epoch + 1, 0)


def cut_windows(tokens: np.ndarray, starts: np.ndarray, count: int, length: int) -> Windows:
    """The `count` windows of `length` inputs in count · length + 1 tokens.

    Args:
        tokens: int32 [count · length + 1].
        starts: ascending indices of the first token of each document; those outside the tokens do not matter.
        count: number of windows.
        length: inputs of each.
    """
    begins = np.zeros(len(tokens), dtype=bool)
    begins[starts[(starts > 0) & (starts < len(tokens))]] = True
    document = np.cumsum(begins, dtype=np.int32)
    inside = document[:-1].reshape(count, length)
    index = np.arange(length, dtype=np.int32)
    begun = begins[:-1].reshape(count, length)
    return Windows(
        inputs=tokens[:-1].reshape(count, length),
        targets=tokens[1:].reshape(count, length),
        segment_ids=inside - inside[:, :1] + 1,
        positions=index - np.maximum.accumulate(np.where(begun, index, 0), axis=1),
        loss_mask=~begins[1:].reshape(count, length),
    )


def _chain(digest: int, tokens: np.ndarray) -> int:
    chained = hashlib.blake2b(digest.to_bytes(8, "little"), digest_size=8)
    chained.update(np.ascontiguousarray(tokens, dtype="<i4"))
    return int.from_bytes(chained.digest(), "little")
