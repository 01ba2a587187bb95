"""How long a large corpus takes before the first batch: listed, fingerprinted, written, read back, permuted.

    make bench-data         # python benchmarks/data_scale.py [--files 5000] [--row-groups 400] [--json]

The corpus is mostly metadata: one parquet file of tiny row groups, with many hard links. Runs in its own process on two
cores, and fails if it exceeds LIMIT_SECONDS or LIMIT_MEBIBYTES.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LIMIT_SECONDS = 60
LIMIT_MEBIBYTES = 1024
BATCH_SIZE = 1024


def write_corpus(folder: Path, files: int, row_groups: int) -> None:
    """Writes a file with row groups of one row each, with statistics and columns that are not read, and hard links."""
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("url", pa.string())])
    folder.mkdir()
    first = folder / "part-00000.parquet"
    with pq.ParquetWriter(first, schema) as writer:
        for row in range(row_groups):
            columns = {"id": [row], "text": [f"text {row}"], "url": [f"https://example.org/{row}"]}
            writer.write_table(pa.table(columns, schema=schema))
    for number in range(1, files):
        (folder / f"part-{number:05d}.parquet").hardlink_to(first)


def measure(folder: Path) -> dict[str, float]:
    """The seconds of each part, the number of units, the memory peak, and the size of the manifest."""
    from tpujob_trainer.data import DataConfig, make_manifest, plan_lanes, read_manifest, write_manifest
    from tpujob_trainer.data.manifest.permutation import Permutation

    config = DataConfig(path=f"{folder}/data/*.parquet")
    seconds = {}
    began = time.monotonic()
    manifest = make_manifest(config, batch_size=BATCH_SIZE)
    seconds["list"] = time.monotonic() - began
    began = time.monotonic()
    fingerprint = manifest.fingerprint
    seconds["fingerprint"] = time.monotonic() - began
    began = time.monotonic()
    write_manifest(manifest, f"{folder}/run")
    units = manifest.num_units
    del manifest
    seconds["write"] = time.monotonic() - began
    began = time.monotonic()
    restored = read_manifest(f"{folder}/run", config)
    assert restored is not None
    assert restored.fingerprint == fingerprint
    seconds["read"] = time.monotonic() - began
    began = time.monotonic()
    plan = plan_lanes(restored, config, batch_size=BATCH_SIZE, seed=0)
    order = Permutation(units, "units", plan.seed, 0, 0).take(np.arange(units))
    assert np.bincount(order, minlength=units).max() == 1
    assert all(order[lane] == plan.unit(lane, 0, 0) for lane in range(plan.lanes))
    seconds["permute"] = time.monotonic() - began
    return {
        "units": units,
        **{f"{name}_seconds": round(value, 2) for name, value in seconds.items()},
        "seconds": round(sum(seconds.values()), 2),
        "peak_mebibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "manifest_mebibytes": round(sum(f.stat().st_size for f in (folder / "run").iterdir()) / (1 << 20), 1),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--files", type=int, default=5000)
    arguments.add_argument("--row-groups", type=int, default=400)
    arguments.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.folder:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
        print(json.dumps(measure(given.folder)))
        return
    with tempfile.TemporaryDirectory() as name:
        write_corpus(Path(name, "data"), given.files, given.row_groups)
        command = [sys.executable, __file__, "--folder", name]
        figures = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    print(f"{given.files} files, {given.files * given.row_groups} row groups: {json.dumps(figures)}")
    if figures["seconds"] > LIMIT_SECONDS or figures["peak_mebibytes"] > LIMIT_MEBIBYTES:
        sys.exit(f"more than {LIMIT_SECONDS} s or {LIMIT_MEBIBYTES} MiB")


if __name__ == "__main__":
    main()
