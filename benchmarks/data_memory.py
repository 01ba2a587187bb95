"""How much memory reading ahead takes: 1,024 lanes on one host.

    make bench-data         # python benchmarks/data_memory.py [--lanes 1024] [--unit-kibibytes 1024] [--json]

A corpus of row groups of about a mebibyte of text, with a lane for each row of the batch, read until every lane has a
unit in memory and the next one ready. Runs in its own process, and fails if it exceeds LIMIT_MEBIBYTES.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LIMIT_MEBIBYTES = 4096
SEQUENCE_LENGTH = 2048
FILES = 32


def write_corpus(folder: Path, lanes: int, unit_bytes: int) -> None:
    """Writes a file and hard links to it; together they have eight units for each lane."""
    folder.mkdir()
    random = np.random.default_rng(0)
    words = [random.bytes(4).hex() for _ in range(5000)]
    rows = unit_bytes // 2000
    first = folder / "0.parquet"
    with pq.ParquetWriter(first, pa.schema([("text", pa.string())]), compression="zstd") as writer:
        for _ in range(lanes * 8 // FILES):
            picked = random.integers(0, len(words), (rows, 222))
            writer.write_table(pa.table({"text": [" ".join(words[at] for at in row) for row in picked]}))
    for number in range(1, FILES):
        (folder / f"{number}.parquet").hardlink_to(first)


def measure(folder: Path, lanes: int) -> dict[str, float]:
    """The memory peak, the memory of each lane, and the seconds of reading 20 batches."""
    from tpujob_trainer.data import BatchLoader, DataConfig, load_tokenizer, make_manifest, plan_lanes

    config = DataConfig(path=f"{folder}/*.parquet")
    tokenizer = load_tokenizer(config)
    manifest = make_manifest(config, batch_size=lanes)
    plan = plan_lanes(manifest, config, batch_size=lanes, seed=0)
    assert plan.lanes == lanes, plan.lanes
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    with BatchLoader(manifest, tokenizer, plan, SEQUENCE_LENGTH, rows=range(lanes)) as loader:
        for _ in range(20):
            next(loader)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "lanes": lanes,
        "unit_mebibytes": round(manifest.largest_unit_bytes / (1 << 20), 2),
        "peak_mebibytes": peak // 1024,
        "mebibytes_of_each_lane": round((peak - before) / 1024 / lanes, 2),
        "seconds": round(time.monotonic() - began, 1),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--lanes", type=int, default=1024)
    arguments.add_argument("--unit-kibibytes", type=int, default=1024)
    arguments.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.folder:
        print(json.dumps(measure(given.folder, given.lanes)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "data")
        write_corpus(folder, given.lanes, given.unit_kibibytes << 10)
        command = [sys.executable, __file__, "--folder", str(folder), "--lanes", str(given.lanes)]
        figures = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    print(f"{given.lanes} lanes: {json.dumps(figures)}")
    if figures["peak_mebibytes"] > LIMIT_MEBIBYTES:
        sys.exit(f"more than {LIMIT_MEBIBYTES} MiB")


if __name__ == "__main__":
    main()
