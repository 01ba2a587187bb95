"""One lane: a stream of documents of one source, cut into windows, with a position that fits into six numbers.

Documents stand one after the other, each between its own bos and eos. A window of sequence length S has S + 1 tokens;
the next one begins with the last token of this one, so that each token but the very first is predicted once. What is
left of a document goes into the next window: nothing is carried along but the position of its first token.

A lane has no end, or that of its last pass over the data: then its last window is filled up with padding, and after it
come windows of nothing else. No document is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from tpujob_trainer.data.documents import Documents
from tpujob_trainer.data.packing import Stretch
from tpujob_trainer.data.plan import LanePlan
from tpujob_trainer.data.rows import SkippedRows, UnitRows
from tpujob_trainer.errors import ConfigurationError

StartRead = Callable[[int, int, int], Callable[[], UnitRows]]
"""Begins to read rows of a unit (its number, the epoch, how many of its order to leave out); returns the wait."""

BATCHES_AHEAD = 2
"""How many more batches a lane looks for when its end is near."""

_MOST_SKIPPED_ROWS = 100_000


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
    """Batches delivered, with or without a window of this lane."""
    digest: int = 0
    """64 bits over all tokens delivered, in order."""


@dataclass
class _Buffer:
    """Tokens ahead of the position and some before it, and which document each comes from."""

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
        documents: Documents,
        sequence_length: int,
        start_read: StartRead,
        skipped: SkippedRows,
        source: int = 0,
        position: LanePosition = LanePosition(),
    ) -> None:
        self.position = position
        self._plan = plan
        self._number = number
        self._source = source
        self._documents = documents
        self._length = sequence_length
        self._start_read = start_read
        self._skipped = skipped
        self._batch_tokens = plan.rows_per_lane * sequence_length
        self._buffer = _Buffer()
        self._at = 0
        self._drop_tokens = position.token
        self._cursor = (position.epoch, position.unit)
        self._pending = self._begin_read(position.row)
        self._rows: UnitRows | None = None
        self._unit_read = self._cursor
        self._empty_units: set[int] = set()
        self._rows_in_vain = 0

    def next_stretch(self, count: int) -> Stretch:
        """The tokens of the lane's rows of the next batch, `count` of them; `position` moves behind them."""
        wanted = count * self._length + 1
        self._fill_to(wanted)
        at, buffer = self._at, self._buffer
        there = min(wanted, len(buffer.tokens) - at)
        tokens = buffer.tokens[at : at + wanted]
        if there < wanted:
            tokens = np.concatenate([tokens, np.zeros(wanted - there, dtype=np.int32)])
        first, last = np.searchsorted(buffer.starts, (at + 1, at + there)).tolist()
        stretch = Stretch(tokens, buffer.starts[first:last] - at, there)
        self._consume(tokens)
        return stretch

    def next_nothing(self) -> None:
        """A batch of which no row is this lane's."""
        self.position = replace(self.position, batches=self.position.batches + 1)

    def batches_left(self) -> int:
        """How many of the next batches have at least one token of this lane to predict, as far as it looks ahead.

        At most `BATCHES_AHEAD`, which a lane without end always has.
        """
        if self._plan.epochs is None:
            return BATCHES_AHEAD
        self._fill_to((BATCHES_AHEAD - 1) * self._batch_tokens + 2)
        targets = max(0, len(self._buffer.tokens) - self._at - 1)
        return min(BATCHES_AHEAD, -(-targets // self._batch_tokens))

    def _consume(self, tokens: np.ndarray) -> None:
        buffer = self._buffer
        self._at = min(self._at + len(tokens) - 1, len(buffer.tokens))
        if self._at < len(buffer.tokens):
            document = int(np.searchsorted(buffer.starts, self._at, side="right")) - 1
            epoch, unit, row = buffer.origins[document].tolist()
            token = self._at - int(buffer.starts[document])
        else:
            assert self._plan.epochs is not None
            epoch, unit, row, token = self._plan.epochs, 0, 0, 0
        self.position = LanePosition(
            epoch, unit, row, token, self.position.batches + 1, _chain(self.position.digest, tokens)
        )

    def _fill_to(self, tokens: int) -> None:
        """Have so many tokens ahead, or all there are."""
        while len(self._buffer.tokens) - self._at < tokens:
            while self._rows is None or not len(self._rows.numbers):
                if self._pending is None:
                    return
                self._next_unit()
            self._tokenise_some()

    def _tokenise_some(self) -> None:
        assert self._rows is not None
        take = self._rows_to_take(self._rows.sizes)
        rows, self._rows = self._rows.split(take)
        tokens, lengths = self._documents(rows.column)
        origins = np.empty((take, 3), dtype=np.int64)
        origins[:, :2] = self._unit_read
        origins[:, 2] = rows.numbers
        if (lengths == 0).any():
            kept = lengths > 0
            unit = self._unit_at(self._unit_read)
            self._skipped.add_refused(unit, rows.originals[~kept], self._documents.refusal)
            origins, lengths = origins[kept], lengths[kept]
        starts = np.cumsum(lengths) - lengths - self._drop_tokens
        tokens, self._drop_tokens = tokens[self._drop_tokens :], 0
        buffer, at = self._buffer, self._at
        left = max(0, int(np.searchsorted(buffer.starts, at, side="right")) - 1)
        self._buffer = _Buffer(
            np.concatenate([buffer.tokens[at:], tokens]),
            np.concatenate([buffer.starts[left:] - at, starts + len(buffer.tokens) - at]),
            np.concatenate([buffer.origins[left:], origins]),
        )
        self._at = 0

    def _rows_to_take(self, sizes: np.ndarray) -> int:
        """Rows to tokenise at once: about four batches of text, so that little is held and little done twice."""
        target = min(max(8 * self._batch_tokens, 64 << 10), 1 << 20)
        sizes = sizes[:4096]
        return int(np.searchsorted(np.cumsum(sizes), target)) + 1 if sizes.sum() > target else len(sizes)

    def _next_unit(self) -> None:
        """Take the unit that was being read, and begin to read the one after it."""
        assert self._pending is not None
        unit, self._unit_read = self._unit_at(self._cursor), self._cursor
        rows = self._pending()
        self._cursor = self._after(self._cursor)
        self._pending = self._begin_read(0)
        self._rows = rows
        self._skipped.add(unit, rows)
        self._require_rows(unit, rows)

    def _begin_read(self, first: int) -> Callable[[], UnitRows] | None:
        if self._plan.epochs is not None and self._cursor[0] >= self._plan.epochs:
            return None
        return self._start_read(self._unit_at(self._cursor), self._cursor[0], first)

    def _require_rows(self, unit: int, rows: UnitRows) -> None:
        if len(rows.numbers):
            self._empty_units.clear()
            self._rows_in_vain = 0
            return
        self._empty_units.add(unit)
        self._rows_in_vain += sum(map(len, rows.skipped.values()))
        whole_source = len(self._empty_units) == len(self._plan.source_units[self._source])
        if whole_source or self._rows_in_vain >= _MOST_SKIPPED_ROWS:
            raise ConfigurationError(
                f"spec.trainer.data.textColumn: no usable text in {len(self._empty_units)} units of rows, one after "
                f"the other ({self._skipped.summary()}); name the column that holds the text"
            )

    def _unit_at(self, cursor: tuple[int, int]) -> int:
        return self._plan.unit(self._number, *cursor, self._source)

    def _after(self, cursor: tuple[int, int]) -> tuple[int, int]:
        epoch, index = cursor
        return (epoch, index + 1) if index + 1 < self._plan.units_in(self._number, self._source) else (epoch + 1, 0)


def _chain(digest: int, tokens: np.ndarray) -> int:
    chained = hashlib.blake2b(digest.to_bytes(8, "little"), digest_size=8)
    chained.update(np.ascontiguousarray(tokens, dtype="<i4"))
    return int.from_bytes(chained.digest(), "little")
