"""Data sets on disk for tests: each test says only what it is about."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tpujob_trainer.data import BatchLoader, DataConfig, LanePlan, LocalBatch, Manifest, load_tokenizer, make_manifest
from tpujob_trainer.data.manifest.reader import UnitReader

BYTES = load_tokenizer(DataConfig(path="unused"))


def write_groups(path: Path, groups: Sequence[Sequence[str | bytes | None]], *, column: str = "text") -> Path:
    """A parquet file with these row groups; a group without rows is written as such."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = pa.binary() if any(isinstance(text, bytes) for group in groups for text in group) else pa.string()
    schema = pa.schema([("id", pa.int64()), (column, kind)])
    with pq.ParquetWriter(path, schema) as writer:
        for group in groups:
            writer.write_table(pa.table({"id": range(len(group)), column: pa.array(group, kind)}, schema=schema))
    return path


def write_numbered(folder: Path, layout: Sequence[Sequence[int]], *, width: int = 8) -> int:
    """A folder of files whose row groups have so many rows; row n says `row-n` and more. Returns the number of rows."""
    number = 0
    for at, groups in enumerate(layout):
        texts = []
        for rows in groups:
            texts.append([f"row-{row};" + "x" * (row * 7 % (width + 1)) for row in range(number, number + rows)])
            number += rows
        write_groups(folder / f"part-{at:04d}.parquet", texts)
    return number


def manifest_of(folder: Path, *, unit_bytes: int = 1 << 23, batch_size: int | None = None) -> Manifest:
    return make_manifest(DataConfig(path=str(folder), unit_bytes=unit_bytes), batch_size=batch_size)


def take(
    manifest: Manifest,
    plan: LanePlan,
    count: int,
    *,
    rows: Sequence[int] | None = None,
    state: np.ndarray | None = None,
    length: int = 16,
    prefetch: int = 0,
    reader: UnitReader | None = None,
) -> list[LocalBatch]:
    """The next batches of one process, which holds all rows unless told otherwise."""
    with BatchLoader(
        manifest,
        BYTES,
        plan,
        length,
        rows=range(plan.batch_size) if rows is None else rows,
        state=state,
        prefetch=prefetch,
        reader=reader,
    ) as loader:
        return [next(loader) for _ in range(count)]


def take_in_parts(
    manifest: Manifest, plan: LanePlan, count: int, *, processes: int, state: np.ndarray | None = None, length: int = 16
) -> list[LocalBatch]:
    """The next global batches, put together from what so many processes make, each of its own rows."""
    shares = np.array_split(np.arange(plan.batch_size), processes)
    parts = [take(manifest, plan, count, rows=share.tolist(), state=state, length=length) for share in shares]
    return [joined(of_step) for of_step in zip(*parts, strict=True)]


def joined(parts: Sequence[LocalBatch]) -> LocalBatch:
    names = ("inputs", "targets", "segment_ids", "positions", "loss_mask", "rows", "state")
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names if name != "state"}
    of_parts, states = (np.concatenate([getattr(part, name) for part in parts]) for name in ("lanes", "state"))
    lanes, first, again = np.unique(of_parts, return_index=True, return_inverse=True)
    # A lane may fill rows of several processes: they all say the same of it.
    assert np.array_equal(states, states[first][again])
    left = max(part.batches_left for part in parts)
    return LocalBatch(**columns, state=states[first], lanes=lanes, batches_left=left)


def raw(batches: Sequence[LocalBatch]) -> list[bytes]:
    """Everything in these batches, byte for byte."""
    names = ("inputs", "targets", "segment_ids", "positions", "loss_mask", "rows", "state")
    return [b"".join(np.ascontiguousarray(getattr(batch, name)).tobytes() for name in names) for batch in batches]
