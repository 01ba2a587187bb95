"""What a large corpus costs before its first batch (scale), and what reading ahead of many lanes takes (memory).

    make bench-data         # python -m benchmarks.data_limits scale|memory

scale: mostly metadata, one parquet file of tiny row groups with many hard links, is listed, fingerprinted, written,
read back and permuted. memory: row groups of about a mebibyte of text, with a lane for each row of the batch, are read
until every lane has a unit in memory and the next one ready. Each is its own process, scale on two cores, and fails if
it exceeds its LIMITS.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import parser, show
from tpujob_trainer.data import (
    BatchLoader,
    DataConfig,
    load_tokenizer,
    make_manifest,
    plan_lanes,
    read_manifest,
    write_manifest,
)
from tpujob_trainer.data.manifest.permutation import Permutation

LIMITS = {"scale": {"seconds": 60, "peak_mebibytes": 1024}, "memory": {"peak_mebibytes": 4096}}
BATCH_SIZE = 1024
UNIT_BYTES, SEQUENCE_LENGTH, FILES_OF_LANES = 1 << 20, 2048, 32


def write_corpus(folder: Path, files: int, row_groups: Iterable[pa.Table]) -> None:
    """Writes a file with these row groups, and hard links to it."""
    folder.mkdir()
    first = folder / "part-00000.parquet"
    tables = iter(row_groups)
    table = next(tables)
    with pq.ParquetWriter(first, table.schema, compression="zstd") as writer:
        writer.write_table(table)
        for table in tables:
            writer.write_table(table)
    for number in range(1, files):
        (folder / f"part-{number:05d}.parquet").hardlink_to(first)


def tiny(row: int) -> pa.Table:
    """A row group of one row, with statistics and columns that are not read."""
    return pa.table({"id": [row], "text": [f"text {row}"], "url": [f"https://example.org/{row}"]})


def wordy(random: np.random.Generator) -> pa.Table:
    """A row group of about a mebibyte."""
    words = [random.bytes(4).hex() for _ in range(5000)]
    picked = random.integers(0, len(words), (UNIT_BYTES // 2000, 222))
    return pa.table({"text": [" ".join(words[at] for at in row) for row in picked]})


def scale(folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """The seconds of each part, the number of units, and the size of the manifest."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    write_corpus(folder / "data", options.files, map(tiny, range(options.row_groups)))
    config = DataConfig(path=f"{folder}/data/*.parquet")
    moments = [time.monotonic()]
    manifest = make_manifest(config, batch_size=BATCH_SIZE)
    moments.append(time.monotonic())
    fingerprint = manifest.fingerprint
    moments.append(time.monotonic())
    write_manifest(manifest, f"{folder}/run")
    units = manifest.num_units
    del manifest
    moments.append(time.monotonic())
    restored = read_manifest(f"{folder}/run", config)
    assert restored is not None
    assert restored.fingerprint == fingerprint
    moments.append(time.monotonic())
    plan = plan_lanes(restored, config, batch_size=BATCH_SIZE, seed=0)
    order = Permutation(units, "units", plan.seed, 0, 0).take(np.arange(units))
    assert np.bincount(order, minlength=units).max() == 1
    assert all(order[lane] == plan.unit(lane, 0, 0) for lane in range(plan.lanes))
    moments.append(time.monotonic())
    parts = dict(zip(("list", "fingerprint", "write", "read", "permute"), np.diff(moments), strict=True))
    return {
        "units": units,
        **{f"{name}_seconds": round(seconds, 2) for name, seconds in parts.items()},
        "seconds": round(sum(parts.values()), 2),
        "manifest_mebibytes": round(sum(f.stat().st_size for f in (folder / "run").iterdir()) / (1 << 20), 1),
    }


def memory(folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """The memory of each lane, and the seconds of reading 20 batches; there are eight units for each lane."""
    lanes, random = options.lanes, np.random.default_rng(0)
    write_corpus(folder / "data", FILES_OF_LANES, (wordy(random) for _ in range(lanes * 8 // FILES_OF_LANES)))
    config = DataConfig(path=f"{folder}/data/*.parquet")
    manifest = make_manifest(config, batch_size=lanes)
    plan = plan_lanes(manifest, config, batch_size=lanes, seed=0)
    assert plan.lanes == lanes, plan.lanes
    before, began = peak_kibibytes(), time.monotonic()
    with BatchLoader(manifest, load_tokenizer(config), plan, SEQUENCE_LENGTH, rows=range(lanes)) as loader:
        for _ in range(20):
            next(loader)
        of_lanes = peak_kibibytes() - before
    return {
        "lanes": lanes,
        "unit_mebibytes": round(manifest.largest_unit_bytes / (1 << 20), 2),
        "mebibytes_of_each_lane": round(of_lanes / 1024 / lanes, 2),
        "seconds": round(time.monotonic() - began, 1),
    }


def peak_kibibytes() -> int:
    """Most memory of this process so far, without what a parent had at the fork, which `ru_maxrss` has."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1])


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("what", choices=LIMITS)
    arguments.add_argument("--files", type=int, default=5000)
    arguments.add_argument("--row-groups", type=int, default=400)
    arguments.add_argument("--lanes", type=int, default=1024)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = {"scale": scale, "memory": memory}[options.what](Path(name), options)
    found["peak_mebibytes"] = peak_kibibytes() // 1024
    show([json.dumps(found)])
    if over := [
        f"{what}: {found[what]}, at most {limit}" for what, limit in LIMITS[options.what].items() if found[what] > limit
    ]:
        sys.exit("; ".join(over))


if __name__ == "__main__":
    main()
