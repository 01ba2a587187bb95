"""Forecasts what an extraction will write, from some rows of its corpus: tokens, bytes of values, bytes of files.

Rows are read and tokenised as workers do it. The size of the files is measured: sampled rows are written with normally
distributed values, which compress like those of a layer. Rows with a common prefix have the same values in it, as in a
causal model: a compressor finds these.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from tpujob_trainer.corpus.extract import units
from tpujob_trainer.corpus.extract.config import ExtractConfig
from tpujob_trainer.corpus.extract.layers import Site, column_of
from tpujob_trainer.corpus.extract.rows import tokens_of
from tpujob_trainer.corpus.extract.shards import UnitTable, write_shards
from tpujob_trainer.data.manifest.manifest import Manifest
from tpujob_trainer.data.manifest.permutation import Permutation
from tpujob_trainer.data.text.tokenizer import Tokenizer

SAMPLED_ROWS = 2048
ROWS_AT_ONCE = 256
"""Rows that are read from one place of the corpus."""
KEPT_TOKENS = 1 << 18
WRITTEN_BYTES = 16 << 20
"""Bytes of values that are written to measure the size of files."""


@dataclass(frozen=True)
class Sampled:
    """Rows of a corpus as tokens."""

    rows: int
    """Number of rows read, including unusable ones."""
    bytes: int
    """Of the units that they were read from, by the manifest."""
    lengths: np.ndarray
    """int64 [usable rows], tokens of each."""
    tokens: np.ndarray
    """int32, the tokens of the rows one after the other; at most the first `KEPT_TOKENS`."""

    @property
    def mean_length(self) -> float | None:
        """Tokens of a usable row; None: there is none."""
        return float(self.lengths.mean()) if len(self.lengths) else None

    @property
    def usable_fraction(self) -> float:
        """Usable rows as a part of the rows read."""
        return len(self.lengths) / self.rows if self.rows else 0.0


@dataclass(frozen=True)
class Output:
    """What all workers write together."""

    rows: int
    tokens: int
    value_bytes: int
    """Values and tokens, before they are compressed and laid out in files."""
    bytes: int
    """Of the files."""


def sample(
    manifest: Manifest,
    tokenizer: Tokenizer,
    *,
    vocab_size: int,
    longest: int,
    is_prompt: bool,
    retry_seconds: float,
) -> Sampled:
    """Some rows from places all over the corpus, tokenised and cut off as workers do it.

    Args:
        manifest: of the corpus.
        tokenizer: makes ids of texts.
        vocab_size: of the model.
        longest: most tokens of a row.
        is_prompt: whether a conversation is written only up to the start of its last answer.
        retry_seconds: how long to retry a file that cannot be read.
    """
    small = units.cut(manifest, ROWS_AT_ONCE, None, field="spec.trainer.extract")
    tokens = tokens_of(
        small,
        tokenizer,
        vocab_size=vocab_size,
        longest=longest,
        is_cut=True,
        is_prompt=is_prompt,
        retry_seconds=retry_seconds,
    )
    order = Permutation(small.num_units, "forecast")
    lengths: list[np.ndarray] = []
    kept: list[np.ndarray] = []
    rows = num_bytes = 0
    for number in range(small.num_units):
        if rows >= SAMPLED_ROWS:
            break
        found = tokens(order[number])
        lengths.append(found.lengths)
        kept.append(found.tokens)
        num_bytes += int(small.unit_bytes[order[number]])
        rows += len(found.lengths) + sum(found.skipped.values())
    return Sampled(rows, num_bytes, np.concatenate(lengths), np.concatenate(kept)[:KEPT_TOKENS])


def output(
    config: ExtractConfig,
    sites: Sequence[Site],
    *,
    layers: int,
    width: int,
    sampled: Sampled,
    rows: int,
    unit_rows: int,
) -> Output:
    """The size of the files of `rows` rows.

    Args:
        config: what is kept, and how it is written.
        sites: places of the model.
        layers: of the model.
        width: of its stream.
        sampled: rows of the corpus.
        rows: of the corpus, or those asked for.
        unit_rows: rows of a unit.
    """
    usable = round(rows * sampled.usable_fraction)
    if not usable:
        return Output(0, 0, 0, 0)
    table = _like_a_unit(config, sites, layers, width, sampled, unit_rows)
    tokens = round(usable * float(sampled.lengths.mean()))
    vectors = tokens if table.per_token else usable
    value_bytes = tokens * table.tokens.itemsize + vectors * _vector_bytes(table)
    measured = _file_bytes(config, table) / int(table.row_bytes.sum())
    return Output(usable, tokens, value_bytes, round(value_bytes * measured))


def _like_a_unit(
    config: ExtractConfig, sites: Sequence[Site], layers: int, width: int, sampled: Sampled, unit_rows: int
) -> UnitTable:
    """The first rows, as many as `WRITTEN_BYTES` allow, with normally distributed values."""
    is_per_token = config.positions == "all"
    ends = np.cumsum(sampled.lengths[:unit_rows])
    vectors_to = ends if is_per_token else np.arange(1, len(ends) + 1)
    fits = (vectors_to * len(sites) * width * 4 <= WRITTEN_BYTES) & (ends <= len(sampled.tokens))
    lengths = sampled.lengths[: max(1, int(fits.sum()))]
    tokens = sampled.tokens[: int(lengths.sum())]
    alike = _prefixes(tokens, lengths)
    if not is_per_token:
        alike = alike[np.cumsum(lengths) - 1]
    chance = np.random.default_rng(0)
    columns: dict[str, np.ndarray] = {}
    for site in sites:
        values = chance.standard_normal((int(alike.max()) + 1, width), dtype=np.float32)[alike]
        name = column_of(site, layers)
        if config.dtype == "int8":
            scales = np.abs(values).max(axis=-1) / np.float32(127)
            columns[name] = np.round(values / scales[:, None]).astype(np.int8)
            columns[f"{name}_scale"] = scales
        else:
            columns[name] = np.asarray(values.astype(jnp.dtype(config.dtype)))
    return UnitTable(
        unit=0,
        samples=np.arange(len(lengths)),
        rows=np.arange(len(lengths), dtype=np.int32),
        tokens=tokens,
        lengths=lengths,
        columns=columns,
        per_token=frozenset(column_of(site, layers) for site in sites) if is_per_token else frozenset(),
    )


def _prefixes(tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """A number for each position, the same if all tokens of the row up to it are: int64 [tokens]."""
    numbers: dict[tuple[int, int], int] = {}
    found = np.empty(len(tokens), dtype=np.int64)
    at = 0
    for length in lengths.tolist():
        before = -1
        for place in range(at, at + length):
            before = numbers.setdefault((before, int(tokens[place])), len(numbers))
            found[place] = before
        at += length
    return found


def _vector_bytes(table: UnitTable) -> int:
    return sum(values.nbytes // len(values) for values in table.columns.values())


def _file_bytes(config: ExtractConfig, table: UnitTable) -> int:
    options: dict[str, Any] = {
        "file_format": config.format,
        "compression": config.compression,
        "shard_bytes": config.shard_bytes,
    }
    with tempfile.TemporaryDirectory() as folder:
        made = write_shards(table, Path(folder), "forecast", **options)
        return sum(file.path.stat().st_size for file in made)
