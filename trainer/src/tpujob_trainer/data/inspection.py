"""What a data set is, before anything is trained on it: its size, what is wrong with it, and the first global batch.

    python -m tpujob_trainer.data.inspection '{"data": {"path": "a.parquet"}, "batchSize": 8, "sequenceLength": 512}'

Writes one JSON object to stdout; `tpujob data inspect` starts it and makes text of that. Needs no devices.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpujob_contract import ExitCode
from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.data.formats import format_named
from tpujob_trainer.data.manifest.manifest import Manifest
from tpujob_trainer.data.manifest.permutation import Permutation, row_order
from tpujob_trainer.data.manifest.plan import LanePlan, plan_lanes
from tpujob_trainer.data.manifest.reader import UnitReader
from tpujob_trainer.data.manifest.scan import make_manifest
from tpujob_trainer.data.sources.remote import RETRYING
from tpujob_trainer.data.stream.lane import LanePosition
from tpujob_trainer.data.stream.loader import BatchLoader
from tpujob_trainer.data.stream.position import batches_digest
from tpujob_trainer.data.stream.rows import REMEDIES, usable_rows
from tpujob_trainer.data.stream.share import describe_share
from tpujob_trainer.data.text.documents import documents_of, kind_of
from tpujob_trainer.data.text.tokenizer import Tokenizer
from tpujob_trainer.data.text.tokenizer_files import load_tokenizer
from tpujob_trainer.distributed.exit import programs
from tpujob_trainer.errors import ConfigurationError, TrainerError
from tpujob_trainer.parsing.from_mapping import parse

SAMPLED_UNITS = 8
"""Of each source, at least."""
SAMPLED_ROWS = 256
"""Of each unit: what is counted exactly would have to be read whole."""
ENOUGH_ROWS = SAMPLED_UNITS * SAMPLED_ROWS
"""Rows of a source that tell how long its rows are; lengths of rows differ by powers of ten."""
ENOUGH_BYTES = 16 << 20
"""Decoded text of a source that is tokenised at most; smaller data sets are counted whole."""
REACH_SECONDS = 15.0
"""How long a storage that does not answer is tried."""
MOST_UNITS = 4096
"""Units that the first batch is read from at most; a unit takes milliseconds, and somebody waits at a terminal."""
WELL_SIZED_PART_BYTES = 8 << 20
"""A row group up to this is read twice in no time."""
LARGE_PART_BYTES = 64 << 20
"""A row group above this is not kept by who reads a part of it."""
SHOWN_CHARACTERS = 240


@dataclass(frozen=True)
class Sample:
    """Some rows, tokenised."""

    rows: int
    bytes: int
    tokens: int
    skipped: dict[str, int]
    examples: list[dict[str, Any]]


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
        TrainerError: as training would end for it.
    """
    tokenizer = load_tokenizer(config)
    told = _Warnings()
    with told:
        manifest = make_manifest(config, batch_size=batch_size)
        plan = plan_lanes(manifest, config, batch_size=batch_size, seed=seed)
    sample = sample_rows(manifest, tokenizer, seed=seed, examples=examples)
    num_bytes = int(manifest.unit_bytes.sum())
    tokens = estimate(manifest.num_rows, sample.rows, num_bytes, sample.bytes, sample.tokens)
    tokens_of_batch = batch_size * sequence_length
    is_slow = is_slow_to_read(tokens or 0, manifest.num_units, tokens_of_batch)
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
        "rows": manifest.num_rows,
        "bytes": num_bytes,
        "parts": _parts(manifest),
        "units": manifest.num_units,
        "lanes": plan.lanes,
        "fingerprint": manifest.fingerprint,
        "tokens": tokens,
        "sampled": {"rows": sample.rows, "tokens": sample.tokens, "skipped": sample.skipped},
        "batches_in_epoch": None if tokens is None else tokens // tokens_of_batch,
        "warnings": [*told.lines, *warnings_about(manifest, plan, sample)],
        "examples": sample.examples,
        "processes": list(shares(manifest, plan, processes)),
        "first_batch": None if is_slow else first_batch(manifest, tokenizer, plan, sequence_length),
    }


def is_slow_to_read(tokens: int, units: int, tokens_of_batch: int) -> bool:
    """Whether a batch is read from more than MOST_UNITS units, each counted as often as it is read."""
    return tokens > 0 and units * tokens_of_batch > MOST_UNITS * tokens


def sample_rows(manifest: Manifest, tokenizer: Tokenizer, *, seed: int, examples: int) -> Sample:
    """Rows from some units of all sources, in the order that training would have."""
    reader = UnitReader(manifest)
    sampled: list[int] = []
    num_bytes = tokens = 0
    skipped: dict[str, int] = {}
    shown: list[dict[str, Any]] = []
    for number in _some_units(manifest, seed, sampled_rows=sampled):
        source = manifest.sources[manifest.file_source[manifest.unit_file[number]]]
        raw = reader.read(number)
        order = row_order(len(raw.column), "rows", seed, 0, number)[:SAMPLED_ROWS]
        usable = usable_rows(raw, order, 0, kind_of(source.column, tokenizer))
        documents = documents_of(source.column, tokenizer)
        ids, lengths, _ = documents(usable.column)
        if refused := int((lengths == 0).sum()):
            skipped[documents.refusal] = skipped.get(documents.refusal, 0) + refused
        for cause, places in usable.skipped.items():
            skipped[cause] = skipped.get(cause, 0) + len(places)
        sampled.append(len(order))
        tokens += int(lengths.sum())
        num_bytes += int(usable.sizes.sum())
        if len(shown) < examples and len(lengths) and lengths[0]:
            text = tokenizer.decode(ids[: int(lengths[0])].tolist())
            name = manifest.name_row(number, int(usable.originals[0]))
            shown.append({"row": name, "tokens": int(lengths[0]), "text": text[:SHOWN_CHARACTERS]})
    return Sample(sum(sampled), num_bytes, tokens, skipped, shown)


def shares(manifest: Manifest, plan: LanePlan, processes: int) -> Iterator[dict[str, Any]]:
    """What each of so many processes fills of a batch and reads first, where rows lie over them one after the other.

    Raises:
        ConfigurationError: the rows of a batch do not divide over them.
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
    rows = [
        {
            "documents": len(set(batch.segment_ids[row].tolist()) - {0}),
            "tokens": batch.inputs[row].tolist(),
            "text": tokenizer.decode(batch.inputs[row].tolist())[:SHOWN_CHARACTERS],
        }
        for row in range(plan.batch_size)
    ]
    return {"digest": batches_digest(batch.state), "rows": rows}


def warnings_about(manifest: Manifest, plan: LanePlan, sample: Sample) -> Iterator[str]:
    """What will make training slow or wasteful, a line each."""
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
    whole = [source for source in manifest.sources if format_named(source.format).elements == "files"]
    closed = [path for path in manifest.paths if path.endswith((".gz", ".zst", ".tar"))]
    if whole or closed:
        yield (
            f"{len(closed)} files, {closed[0] if closed else manifest.paths[0]!r} for one, cannot be read from their "
            "middle: a lane reads a whole file at a time, and a restart reads it again; parquet, or plain jsonl, can be"
        )
    of_no_use = sum(sample.skipped.values())
    if of_no_use:
        causes = "; ".join(
            f"{count} ({count / sample.rows:.1%}) {cause}{f' ({REMEDIES[cause]})' if cause in REMEDIES else ''}"
            for cause, count in sorted(sample.skipped.items())
        )
        yield f"{of_no_use} of {sample.rows} sampled rows cannot be used: {causes}"


class _Warnings(logging.Handler):
    """What the data's own code warns of, while in its `with`."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._logger = logging.getLogger("tpujob_trainer.data")

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def __enter__(self) -> None:
        self._logger.addHandler(self)

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)


def estimate(rows: int | None, sampled_rows: int, size: int, sampled_bytes: int, tokens: int) -> int | None:
    """Tokens of all, by rows where they are known: the sizes that files tell are not quite those of the text."""
    if rows is not None:
        return round(rows * tokens / sampled_rows)
    return round(size * tokens / sampled_bytes) if sampled_bytes else None


def _some_units(manifest: Manifest, seed: int, *, sampled_rows: Sequence[int]) -> Iterator[int]:
    """Units of each source in the order of training, until they tell enough; `sampled_rows` grows meanwhile."""
    for source, units in enumerate(manifest.source_units):
        order = Permutation(len(units), "units", seed, 0, source)
        rows_before, num_bytes = sum(sampled_rows), 0
        for index in range(len(units)):
            is_enough = sum(sampled_rows) - rows_before >= ENOUGH_ROWS or num_bytes >= ENOUGH_BYTES
            if index >= SAMPLED_UNITS and is_enough:
                break
            number = units[order[index]]
            num_bytes += int(manifest.unit_bytes[number])
            yield number


def _part_bytes(manifest: Manifest) -> np.ndarray:
    """Decoded bytes of each part of each file."""
    key = manifest.unit_file.astype(np.int64) << 32 | manifest.unit_part
    _, which = np.unique(key, return_inverse=True)
    return np.bincount(which, weights=manifest.unit_bytes)


def _parts(manifest: Manifest) -> dict[str, int]:
    sizes = _part_bytes(manifest)
    return {"count": len(sizes), "smallest_bytes": int(sizes.min()), "largest_bytes": int(sizes.max())}


def main() -> int:
    """Inspects what the first argument says, and tells it on stdout; the exit code."""
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    asked = json.loads(sys.argv[1])
    # Somebody waits at a terminal: what cannot be reached is told soon.
    RETRYING.limit_seconds = REACH_SECONDS
    try:
        config = parse(DataConfig, asked["data"], "spec.trainer.data")
        found = inspect(
            config,
            batch_size=asked["batchSize"],
            sequence_length=asked["sequenceLength"],
            seed=asked.get("seed", 0),
            examples=asked.get("examples", 3),
            processes=asked.get("processes", 1),
        )
    except TrainerError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(json.dumps(found) + "\n")
    return ExitCode.FINISHED


if __name__ == "__main__":
    programs.end(main())
