"""The work of a unit: its rows as tokens, the kept values of the model, and the files of both."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpujob_trainer.data.manifest.retrying_reader import RetryingReader
from tpujob_trainer.data.stream.rows import usable_rows
from tpujob_trainer.data.text.columns import Kind
from tpujob_trainer.data.text.tokenizer import Tokenizer
from tpujob_trainer.extract.batches import Batch, batch_rows, plan_batches
from tpujob_trainer.extract.config import ExtractConfig
from tpujob_trainer.extract.forward import Forward, Outputs
from tpujob_trainer.extract.shards import UnitTable, write_shards
from tpujob_trainer.extract.values import STATISTICS
from tpujob_trainer.workers.engine import Packed

UNDER_WAY = 2
"""Batches that the devices have been given, and whose values have not arrived yet."""


@dataclass(frozen=True)
class Rows:
    """The usable rows of a unit as tokens."""

    unit: int
    places: np.ndarray
    """int32 [rows], in the unit."""
    tokens: np.ndarray
    """int32, one row after the other."""
    lengths: np.ndarray
    """int64 [rows]"""
    skipped: dict[str, int]
    """Rows left out, by cause."""


@dataclass(frozen=True)
class Values:
    """What the model made of a unit's rows."""

    rows: Rows
    columns: dict[str, np.ndarray]
    """`[vectors, D]`, scales `[vectors]`, in the order of the rows."""
    statistics: dict[str, list[float]]


class Tokens:
    """Units as rows of tokens; for one thread."""

    def __init__(
        self, reader: RetryingReader, tokenizer: Tokenizer, kind: Kind, *, is_text: bool, longest: int
    ) -> None:
        """Reads nothing yet.

        Args:
            reader: of the manifest's units.
            tokenizer: makes ids of texts.
            kind: what the column holds.
            is_text: whether it is text, and not ids already.
            longest: tokens of a row; what is behind them is cut off.
        """
        self._reader, self._tokenizer, self._kind = reader, tokenizer, kind
        self._is_text, self._longest = is_text, longest

    def __call__(self, unit: int) -> Rows:
        """The rows of a unit.

        Raises:
            NotFoundError: its file is gone, unreadable or another one.
        """
        raw = self._reader.read(unit)
        rows = usable_rows(raw, np.arange(len(raw.column)), 0, self._kind)
        encoded = self._encoded(rows.column)
        lengths = np.array([len(ids) for ids in encoded], dtype=np.int64)
        skipped = {cause: len(places) for cause, places in rows.skipped.items()}
        if (empty := int((lengths == 0).sum())) > 0:
            skipped["no token"] = skipped.get("no token", 0) + empty
        kept = np.flatnonzero(lengths)
        return Rows(
            unit,
            rows.originals[kept].astype(np.int32),
            np.concatenate([encoded[at] for at in kept]) if len(kept) else np.empty(0, np.int32),
            lengths[kept],
            skipped,
        )

    def _encoded(self, column: Any) -> list[np.ndarray]:
        """Ids as transformers' tokenizers give them: bos where there is one, and no eos."""
        if not self._is_text:
            return [np.asarray(ids, dtype=np.int32)[: self._longest] for ids in column.to_pylist()]
        bos = [] if self._tokenizer.bos is None else [self._tokenizer.bos]
        encoded = self._tokenizer.encode(column.to_pylist())
        return [np.array([*bos, *ids][: self._longest], dtype=np.int32) for ids in encoded]


class Activations:
    """Activations of units, for the engine of independent workers."""

    def __init__(
        self,
        config: ExtractConfig,
        tokens: Tokens,
        forward: Forward,
        *,
        buckets: tuple[int, ...],
        batch: int,
        first_sample: Callable[[int], int],
        on_batch: Callable[[], None] = lambda: None,
    ) -> None:
        """Computes nothing yet.

        Args:
            config: what is kept, and how it is written.
            tokens: of units.
            forward: the model.
            buckets: row lengths, ascending.
            batch: rows of a batch of the longest length.
            first_sample: the sample number of the first row of a unit.
            on_batch: is called after each batch.
        """
        self._config = config
        self._tokens = tokens
        self._forward = forward
        self._buckets = buckets
        self._batch = batch
        self._first_sample = first_sample
        self._on_batch = on_batch

    def compile(self) -> None:
        """Compiles the model for every length."""
        for length in self._buckets:
            self._forward.compiled(self._rows_of(length), length)

    def read(self, unit: int) -> Rows:
        """The rows of a unit as tokens."""
        return self._tokens(unit)

    def compute(self, rows: Rows) -> Values:
        """The kept values of all its rows."""
        taken = _Taken(rows, is_per_token=self._config.positions == "all")
        under_way: deque[tuple[Batch, Outputs]] = deque()
        for batch in plan_batches(rows.lengths, self._buckets, self._batch):
            outputs = self._forward(*self._filled(rows, batch))
            for kept in outputs.values():
                for array in kept.values():
                    array.copy_to_host_async()
            under_way.append((batch, outputs))
            if len(under_way) > UNDER_WAY:
                taken.add(*under_way.popleft())
            self._on_batch()
        for batch, outputs in under_way:
            taken.add(batch, outputs)
        return Values(rows, taken.columns, taken.statistics)

    def size(self, computed: Values) -> int:
        """Bytes of its values."""
        return sum(values.nbytes for values in computed.columns.values()) + computed.rows.tokens.nbytes

    def pack(self, computed: Values, folder: Path, name: str) -> Packed:
        """The files of a unit."""
        rows = computed.rows
        table = UnitTable(
            unit=rows.unit,
            samples=self._first_sample(rows.unit) + rows.places.astype(np.int64),
            rows=rows.places,
            tokens=rows.tokens,
            lengths=rows.lengths,
            columns=computed.columns,
            is_per_token=self._config.positions == "all",
        )
        files = write_shards(
            table,
            folder,
            name,
            file_format=self._config.format,
            compression=self._config.compression,
            shard_bytes=self._config.shard_bytes,
        )
        return Packed(files, int(rows.lengths.sum()), rows.skipped, table.checksum(), computed.statistics)

    def _rows_of(self, length: int) -> int:
        return batch_rows(length, longest=self._buckets[-1], rows=self._batch)

    def _filled(self, rows: Rows, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Tokens `[B, S]` and lengths `[B]`, with rows of nothing at the end if there are too few."""
        tokens = np.zeros((self._rows_of(batch.length), batch.length), dtype=np.int32)
        lengths = np.zeros(len(tokens), dtype=np.int32)
        ends = np.cumsum(rows.lengths)
        for place, row in enumerate(batch.rows.tolist()):
            length = int(rows.lengths[row])
            tokens[place, :length] = rows.tokens[ends[row] - length : ends[row]]
            lengths[place] = length
        return tokens, lengths


class _Taken:
    """Values of a unit's batches, put where their rows belong."""

    def __init__(self, rows: Rows, *, is_per_token: bool) -> None:
        self.columns: dict[str, np.ndarray] = {}
        self.statistics: dict[str, list[float]] = {}
        self._rows = rows
        self._is_per_token = is_per_token
        self._ends = np.cumsum(rows.lengths)

    def add(self, batch: Batch, outputs: Outputs) -> None:
        """Takes the values of a batch from the devices."""
        for column, kept in outputs.items():
            self._place(column, batch, np.asarray(kept["values"]))
            if "scales" in kept:
                self._place(f"{column}_scale", batch, np.asarray(kept["scales"]))
            for sums in np.asarray(kept["sums"]).tolist():
                if sums[0]:  # a device may have had padding alone
                    self.statistics[column] = add_statistics(self.statistics.get(column), sums)

    def _place(self, column: str, batch: Batch, values: np.ndarray) -> None:
        width = values.shape[2:] if self._is_per_token else values.shape[1:]
        count = int(self._rows.lengths.sum()) if self._is_per_token else len(self._rows.lengths)
        into = self.columns.setdefault(column, np.empty((count, *width), values.dtype))
        if not self._is_per_token:
            into[batch.rows] = values[: len(batch.rows)]
            return
        for place, row in enumerate(batch.rows.tolist()):
            length = int(self._rows.lengths[row])
            into[self._ends[row] - length : self._ends[row]] = values[place, :length]


def add_statistics(before: list[float] | None, more: list[float]) -> list[float]:
    """Two lists of `STATISTICS` together."""
    assert len(more) == len(STATISTICS)
    if before is None:
        return more
    least, most = min(before[3], more[3]), max(before[4], more[4])
    sums = [a + b for a, b in zip(before, more, strict=True)]
    return [*sums[:3], least, most, sums[5]]
