"""One lane: a stream of documents of one source, cut into windows, with a position that fits into six numbers.

Documents are concatenated, each between its own bos and eos. A window of sequence length S has S + 1 tokens; the next
one begins with the last token of this one, so that each token except the very first is predicted once. The rest of a
document goes into the next window: the only state is the position of its first token.

A lane either has no end, or ends with its last pass over the data: then its last window is padded, and later windows
are padding only. No document is left out.
"""

import itertools
from collections.abc import Callable
from dataclasses import astuple, dataclass, field

import numpy as np
import xxhash

from tpujob_trainer.data.manifest.plan import LanePlan
from tpujob_trainer.data.stream.packing import TokenSpan
from tpujob_trainer.data.stream.prefetch import Pending
from tpujob_trainer.data.stream.rows import SkipCounts, SkippedRows, UnitRows, remedy_of_all
from tpujob_trainer.data.text.documents import Documents
from tpujob_trainer.values.errors import ConfigurationError

StartRead = Callable[[int, int, int], Pending[UnitRows]]
"""Starts to read rows of a unit: its number, the epoch, how many rows of its order to skip."""

BATCHES_AHEAD = 2
"""How many batches a lane looks ahead for its end."""

POSITION_NUMBERS = 6

_MOST_SKIPPED_ROWS = 100_000
"""After this many consecutive unusable rows, the data counts as having no text."""

# Limits of what is tokenised at once, in rows and bytes of text.
_BYTES_FOR_A_TOKEN = 8
_LEAST_BYTES = 65_536
_MOST_BYTES = 1_048_576
_MOST_ROWS = 4096


@dataclass(frozen=True)
class LanePosition:
    """Where the next window of a lane starts, and what it has delivered so far."""

    epoch: int = 0
    unit: int = 0
    """Index among the lane's units of this epoch."""
    row: int = 0
    """Index in the shuffled order of the unit's rows."""
    token: int = 0
    """Tokens of that row's document that come before the window."""
    batches: int = 0
    """Batches delivered, with or without a window of this lane."""
    digest: int = 0
    """64 bits over all tokens delivered, in order."""

    def numbers(self) -> np.ndarray:
        """All six numbers, int64; the digest with its bits unchanged."""
        *places, digest = astuple(self)
        return np.append(np.array(places, dtype=np.int64), np.array([digest], dtype=np.uint64).view(np.int64))


@dataclass
class _Buffer:
    """Tokens ahead of the position and some before it, and which document each comes from."""

    tokens: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    starts: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """int64 [documents]: index of the first token of each; the first one's may be negative."""
    origins: np.ndarray = field(default_factory=lambda: np.empty((0, 3), dtype=np.int64))
    """int64 [documents, 3]: epoch, unit, row."""
    learned: np.ndarray | None = None
    """bool, for each token whether it is learned; None: all are."""


class Lane:
    """The windows of one lane, starting at a position."""

    def __init__(
        self,
        plan: LanePlan,
        number: int,
        *,
        documents: Documents,
        sequence_length: int,
        start_read: StartRead,
        skipped: SkippedRows,
        field: str = "spec.trainer.data",
        source: int = 0,
        position: LanePosition = LanePosition(),
    ) -> None:
        self._position = position.numbers()
        self._plan = plan
        self._number = number
        self._source = source
        self._documents = documents
        self._length = sequence_length
        self._start_read = start_read
        self._skipped = skipped
        self._field = field
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
        self._unusable = SkipCounts(skipped.name_row)

    def ready(self, ends: np.ndarray) -> int:
        """How many batches can be taken now: at least one, for which this waits; it does not wait for more.

        Args:
            ends: int64 [batches]: inputs of this lane in the first batch, in the first two, and so on.
        """
        more = 1 if self._plan.epochs is None else (BATCHES_AHEAD - 1) * self._batch_tokens + 2
        needed = ends + more
        self._fill_to(int(needed[0]))
        while self._ahead() < needed[-1]:
            if self._has_rows():
                self._tokenise_some()
            elif self._pending is not None and self._pending.is_there():
                self._next_unit()
            else:
                break
        if self._pending is None:
            return len(ends)
        return int(np.searchsorted(needed, self._ahead(), side="right"))

    def batches_left(self, ends: np.ndarray) -> np.ndarray:
        """For each batch, how many later ones have a token of this lane to predict, int64 [batches].

        At most `BATCHES_AHEAD`, the value for a lane without end. The batches must be among those that `ready` has
        counted.
        """
        if self._plan.epochs is None:
            return np.full(len(ends), BATCHES_AHEAD)
        targets = np.maximum(self._ahead() - 1 - ends, 0)
        return np.minimum(-(-targets // self._batch_tokens), BATCHES_AHEAD)

    def take(self, ends: np.ndarray) -> tuple[TokenSpan | None, np.ndarray]:
        """The tokens of the next batches (None: no row of them is the lane's), and the position after each batch.

        The positions are int64 [batches, 6], as from `LanePosition.numbers`. The batches must be among those that
        `ready` has counted.
        """
        buffer, last, size = self._buffer, self._position, len(self._buffer.tokens)
        positions = np.empty((len(ends), POSITION_NUMBERS), dtype=np.int64)
        positions[:] = last
        positions[:, 4] += np.arange(1, len(ends) + 1)
        span = None
        if ends[-1]:
            begun = int(ends.searchsorted(0, side="right"))
            behind = ends[begun:] + self._at
            over = int(behind.searchsorted(size))
            documents = buffer.starts.searchsorted(behind[:over], side="right") - 1
            there = positions[begun : begun + over]
            there[:, :3] = buffer.origins[documents]
            there[:, 3] = behind[:over] - buffer.starts[documents]
            if over < len(behind):
                assert self._plan.epochs is not None
                positions[begun + over :, :4] = (self._plan.epochs, 0, 0, 0)
            span = self._span(int(ends[-1]) + 1)
            positions[begun:, 5] = _chained(last[5], span.tokens, [0, *ends[begun:].tolist()])
            self._at = min(int(behind[-1]), size)
        self._position = positions[-1]
        return span, positions

    def _span(self, wanted: int) -> TokenSpan:
        """The next `wanted` tokens, padded if there are fewer."""
        at, buffer = self._at, self._buffer
        there = min(wanted, len(buffer.tokens) - at)
        tokens = buffer.tokens[at : at + wanted]
        if there < wanted:
            tokens = np.concatenate([tokens, np.zeros(wanted - there, dtype=np.int32)])
        learned = None if buffer.learned is None else buffer.learned[at : at + wanted]
        if learned is not None and there < wanted:
            learned = np.concatenate([learned, np.zeros(wanted - there, dtype=bool)])
        first, last = buffer.starts.searchsorted((at + 1, at + there)).tolist()
        return TokenSpan(tokens, buffer.starts[first:last] - at, there, learned)

    def _ahead(self) -> int:
        return len(self._buffer.tokens) - self._at

    def _has_rows(self) -> bool:
        return self._rows is not None and len(self._rows.numbers) > 0

    def _fill_to(self, tokens: int) -> None:
        """Tokenises until `tokens` tokens are ahead, or all that there are."""
        while self._ahead() < tokens:
            while not self._has_rows():
                if self._pending is None:
                    return
                self._next_unit()
            self._tokenise_some()

    def _tokenise_some(self) -> None:
        assert self._rows is not None
        take = self._rows_to_take(self._rows.sizes)
        rows, self._rows = self._rows.split(take)
        tokens, lengths, learned = self._documents(rows.column)
        origins = np.empty((take, 3), dtype=np.int64)
        origins[:, :2] = self._unit_read
        origins[:, 2] = rows.numbers
        if (lengths == 0).any():
            kept = lengths > 0
            unit = self._unit_at(self._unit_read)
            self._skipped.add_refused(unit, rows.originals[~kept], self._documents.refusal)
            origins, lengths = origins[kept], lengths[kept]
        starts = np.cumsum(lengths) - lengths - self._drop_tokens
        buffer, at = self._buffer, self._at
        if learned is not None:
            before = np.empty(0, dtype=bool) if buffer.learned is None else buffer.learned[at:]
            learned = np.concatenate([before, learned[self._drop_tokens :]])
        tokens, self._drop_tokens = tokens[self._drop_tokens :], 0
        left = max(0, int(np.searchsorted(buffer.starts, at, side="right")) - 1)
        self._buffer = _Buffer(
            np.concatenate([buffer.tokens[at:], tokens]),
            np.concatenate([buffer.starts[left:] - at, starts + len(buffer.tokens) - at]),
            np.concatenate([buffer.origins[left:], origins]),
            learned,
        )
        self._at = 0

    def _rows_to_take(self, sizes: np.ndarray) -> int:
        """Rows to tokenise at once: a few batches of text, so that little is held and little done twice."""
        target = min(max(_BYTES_FOR_A_TOKEN * self._batch_tokens, _LEAST_BYTES), _MOST_BYTES)
        sizes = sizes[:_MOST_ROWS]
        return min(int(np.searchsorted(np.cumsum(sizes), target)) + 1, len(sizes))

    def _next_unit(self) -> None:
        """Takes the unit that was being read, and starts to read the next one."""
        assert self._pending is not None
        unit, self._unit_read = self._unit_at(self._cursor), self._cursor
        rows = self._pending.wait()
        self._cursor = self._after(self._cursor)
        self._pending = self._begin_read(0)
        self._rows = rows
        self._skipped.add(unit, rows)
        self._require_rows(unit, rows)

    def _begin_read(self, first: int) -> Pending[UnitRows] | None:
        if self._plan.epochs is not None and self._cursor[0] >= self._plan.epochs:
            return None
        return self._start_read(self._unit_at(self._cursor), self._cursor[0], first)

    def _require_rows(self, unit: int, rows: UnitRows) -> None:
        if len(rows.numbers):
            self._empty_units.clear()
            self._rows_in_vain = 0
            self._unusable = SkipCounts(self._skipped.name_row)
            return
        if unit not in self._empty_units:  # counts are of rows of the data, however often they were read
            self._empty_units.add(unit)
            for cause, places in rows.skipped.items():
                self._unusable.count(unit, places, cause)
        self._rows_in_vain += sum(map(len, rows.skipped.values()))
        whole_source = len(self._empty_units) == len(self._plan.source_units[self._source])
        if whole_source or self._rows_in_vain >= _MOST_SKIPPED_ROWS:
            if self._rows_in_vain == 0:
                raise ConfigurationError(
                    f"spec.trainer.data.path: no rows in {len(self._empty_units)} units of data, such as "
                    f"{self._skipped.name_row(unit, 0)}; empty files and blank lines have none"
                )
            raise ConfigurationError(
                f"{self._field}: no usable text in {len(self._empty_units)} units of rows, one after the other "
                f"({self._unusable.summary()}){remedy_of_all(self._unusable.by_cause)}"
            )

    def _unit_at(self, cursor: tuple[int, int]) -> int:
        return self._plan.unit(self._number, *cursor, self._source)

    def _after(self, cursor: tuple[int, int]) -> tuple[int, int]:
        epoch, index = cursor
        return (epoch, index + 1) if index + 1 < self._plan.units_in(self._number, self._source) else (epoch + 1, 0)


def _chained(digest: np.int64, tokens: np.ndarray, borders: list[int]) -> np.ndarray:
    """The digest, int64, after the tokens from each border to the next plus one more; unchanged if there are none."""
    content = memoryview(np.ascontiguousarray(tokens, dtype="<i4")).cast("B")
    found, last = [], int(digest.view(np.uint64))
    for begin, end in itertools.pairwise(borders):
        if end > begin:
            last = xxhash.xxh3_64_intdigest(content[4 * begin : 4 * end + 4], last)
        found.append(last)
    return np.array(found, dtype=np.uint64).view(np.int64)
