"""Inspects a data set before training: its size, its problems, and the first global batch."""

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np

from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.data.formats import format_named
from tpujob_trainer.data.inspection.sample import Sample, sample_rows, size_of, spans_of
from tpujob_trainer.data.manifest.manifest import Manifest
from tpujob_trainer.data.manifest.plan import LanePlan, plan_lanes
from tpujob_trainer.data.manifest.scan import make_manifest
from tpujob_trainer.data.stream.lane import LanePosition
from tpujob_trainer.data.stream.loader import BatchLoader, LocalBatch
from tpujob_trainer.data.stream.position import batches_digest, describe_share
from tpujob_trainer.data.stream.rows import logger as rows_logger
from tpujob_trainer.data.stream.rows import with_remedy
from tpujob_trainer.data.text.tokenizer import Tokenizer
from tpujob_trainer.data.text.tokenizer_files import load_tokenizer
from tpujob_trainer.values.errors import ConfigurationError

REACH_SECONDS = 15.0
"""How long storage that does not answer is retried."""
MOST_UNITS = 4096
"""The most units that the first batch is read from; a unit takes milliseconds, and a user waits at a terminal."""
WELL_SIZED_PART_BYTES = 8 << 20
"""Reading a row group up to this size twice takes almost no time."""
LARGE_PART_BYTES = 64 << 20
"""A row group above this size is not cached when a part of it is read."""


def inspect(
    config: DataConfig,
    *,
    batch_size: int,
    sequence_length: int,
    seed: int = 0,
    examples: int = 3,
    processes: int = 1,
) -> dict[str, Any]:
    """The facts about a data set, as JSON values.

    Raises:
        TrainerError: the error with which training would end.
    """
    tokenizer = load_tokenizer(config)
    told = DataWarnings()
    tokens_of_batch = batch_size * sequence_length
    with told:
        manifest = make_manifest(config, batch_size=batch_size)
        plan = plan_lanes(manifest, config, batch_size=batch_size, seed=seed)
        sample = sample_rows(manifest, tokenizer, seed=seed, examples=examples)
        size = size_of(manifest, sample)
        tokens = size.tokens
        is_slow = is_slow_to_read(tokens or 0, manifest.num_units, tokens_of_batch)
        batch = None if is_slow else first_batch(manifest, tokenizer, plan, sequence_length)
    if tokens and is_slow:
        told.lines.append(
            f"a batch of {batch_size:,} x {sequence_length:,} tokens takes {tokens_of_batch // tokens:,} passes over "
            f"the {tokens:,} tokens of the data, too many to show the first one; each step of training would read as "
            "much. Use a smaller batch, or more data"
        )
    return {
        "roots": [source.root for source in manifest.sources],
        "formats": sorted({source.format for source in manifest.sources}),
        "files": len(manifest.paths),
        "file_bytes": int(manifest.sizes.sum()),
        "rows": size.rows,
        "bytes": int(manifest.unit_bytes.sum()),
        "parts": _parts(manifest),
        "units": manifest.num_units,
        "lanes": plan.lanes,
        "fingerprint": manifest.fingerprint,
        "tokens": tokens,
        "is_exact": size.is_exact,
        "sampled": {"rows": sample.rows, "tokens": sample.tokens, "skipped": sample.skipped},
        "batches_in_epoch": None if tokens is None else tokens // tokens_of_batch,
        "warnings": [*told.lines, *warnings_about(manifest, plan, sample)],
        "learns_all": all(source.column.loss_on != "assistant" for source in manifest.sources),
        "examples": sample.examples,
        "processes": list(shares(manifest, plan, processes)),
        "first_batch": batch,
    }


def is_slow_to_read(tokens: int, units: int, tokens_of_batch: int) -> bool:
    """Whether a batch is read from more than MOST_UNITS units, each counted as often as it is read."""
    return tokens > 0 and units * tokens_of_batch > MOST_UNITS * tokens


def shares(manifest: Manifest, plan: LanePlan, processes: int) -> Iterator[dict[str, Any]]:
    """The rows, the lanes and the first rows read of each process, if each holds consecutive rows of a batch.

    Raises:
        ConfigurationError: the rows of a batch cannot be divided evenly over them.
    """
    if plan.batch_size % processes:
        raise ConfigurationError(f"--processes: {processes} do not divide the {plan.batch_size} rows of a batch")
    count = plan.batch_size // processes
    for process in range(processes):
        rows = range(process * count, (process + 1) * count)
        lanes = plan.lanes_of(rows)
        keys = [(lane, source) for lane in lanes for source in range(plan.num_sources)]
        begin = dict.fromkeys(keys, LanePosition())
        yield {
            "rows": [rows[0], rows[-1]],
            "lanes": [lanes[0], lanes[-1]],
            "first_rows": describe_share(manifest, plan, begin),
        }


def first_batch(manifest: Manifest, tokenizer: Tokenizer, plan: LanePlan, sequence_length: int) -> dict[str, Any]:
    """The first global batch, exactly as training will have it."""
    with BatchLoader(manifest, tokenizer, plan, sequence_length, rows=range(plan.batch_size), prefetch=0) as loader:
        batch = next(loader)
    rows = [_row(batch, row, tokenizer) for row in range(plan.batch_size)]
    return {
        "digest": batches_digest(batch.state),
        "learned_tokens": int(batch.loss_mask.sum()),
        "rows": rows,
    }


def _row(batch: LocalBatch, row: int, tokenizer: Tokenizer) -> dict[str, Any]:
    """One row as the model gets it; the mask states for each position whether the token after it is learned."""
    # The last target is not an input of this row.
    learned = np.concatenate([[False], batch.loss_mask[row, :-1]])
    spans = spans_of(tokenizer, batch.inputs[row], learned)
    return {
        "documents": len(set(batch.segment_ids[row].tolist()) - {0}),
        "tokens": batch.inputs[row].tolist(),
        "loss_mask": batch.loss_mask[row].astype(int).tolist(),
        "text": "".join(span["text"] for span in spans),
        "spans": spans,
    }


def warnings_about(manifest: Manifest, plan: LanePlan, sample: Sample) -> Iterator[str]:
    """Warnings about what will make training slow or wasteful, one line each."""
    part_bytes = _part_bytes(manifest)
    parquet = all(source.format == "parquet" for source in manifest.sources)
    if parquet and len(part_bytes) < manifest.num_units and part_bytes.max() > WELL_SIZED_PART_BYTES:
        yield (
            f"{plan.lanes} lanes want {manifest.num_units} units and there are {len(part_bytes)} row groups of up to "
            f"{part_bytes.max() / 1e6:.0f} MB: they are cut, and a host reads a whole row group for a part of it; "
            f"write smaller row groups, at least {manifest.num_units} of them"
        )
    if parquet and part_bytes.max() > LARGE_PART_BYTES:
        yield (
            f"row groups of up to {part_bytes.max() / 1e6:.0f} MB are read again for each of their parts; "
            "write row groups of 8 MB or so"
        )
    has_rows = np.array([format_named(source.format).elements == "rows" for source in manifest.sources])
    is_whole = (manifest.unit_count == 1) & (manifest.sizes[manifest.unit_file] > 1)
    is_whole &= ~has_rows[manifest.file_source[manifest.unit_file]]
    closed = [manifest.paths[file] for file in manifest.unit_file[is_whole].tolist()]
    if closed:
        yield (
            f"{len(closed)} files, {closed[0]!r} for one, cannot be read from their "
            "middle: a lane reads a whole file at a time, and a restart reads it again; parquet, or plain jsonl, can be"
        )
    of_no_use = sum(sample.skipped.values())
    if of_no_use:
        causes = "; ".join(
            f"{count} ({count / sample.rows:.1%}) {with_remedy(cause)}"
            for cause, count in sorted(sample.skipped.items())
        )
        yield f"{of_no_use} of {sample.rows} sampled rows cannot be used: {causes}"


class DataWarnings(logging.Handler):
    """Collects the warnings that the data code logs inside its `with` block; an error that ends it has them, too."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._logger = logging.getLogger("tpujob_trainer.data")

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != rows_logger.name:  # the sample counts rows itself
            self.lines.append(record.getMessage())

    def __enter__(self) -> None:
        self._before = self._logger.level, self._logger.propagate
        self._logger.addHandler(self)
        # Collected whatever the level of the process's log is, and not written there as well.
        self._logger.setLevel(logging.WARNING)
        self._logger.propagate = False

    def __exit__(self, _: object, error: BaseException | None, *rest: object) -> None:
        self._logger.removeHandler(self)
        level, self._logger.propagate = self._before
        self._logger.setLevel(level)
        if isinstance(error, ConfigurationError) and self.lines:
            error.args = (f"{error} (warnings before: {'; '.join(self.lines)})",)


def _part_bytes(manifest: Manifest) -> np.ndarray:
    """Decoded bytes of each part of each file."""
    key = manifest.unit_file.astype(np.int64) << 32 | manifest.unit_part
    _, which = np.unique(key, return_inverse=True)
    return np.bincount(which, weights=manifest.unit_bytes)


def _parts(manifest: Manifest) -> dict[str, int]:
    sizes = _part_bytes(manifest)
    return {"count": len(sizes), "smallest_bytes": int(sizes.min()), "largest_bytes": int(sizes.max())}
