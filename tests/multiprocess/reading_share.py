"""Reads one process's share of a data set for one pass, and says what that took: no devices, the loader alone.

Arguments: path, process, processes, batch rows, sequence length.
"""

import json
import logging
import sys
from pathlib import Path

import numpy as np

from tpujob_trainer.data import BatchLoader, DataConfig, load_tokenizer, make_manifest, plan_lanes
from tpujob_trainer.storage.read_meter import METER


def bytes_of_the_kernel() -> int:
    """Bytes that this process has had from read() and its kin, as Linux counts them."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def main() -> None:
    path, process, processes, rows, length = sys.argv[1], *map(int, sys.argv[2:])
    config = DataConfig(path=path, epochs=1)
    tokenizer = load_tokenizer(config)
    manifest = make_manifest(config, batch_size=rows)
    plan = plan_lanes(manifest, config, batch_size=rows, seed=0)
    mine = np.array_split(np.arange(rows), processes)[process]
    with BatchLoader(manifest, tokenizer, plan, length, rows=mine, prefetch=0) as loader:
        next(loader)  # whatever is imported at first use is not data
    before, counted = bytes_of_the_kernel(), METER.bytes_read
    with BatchLoader(manifest, tokenizer, plan, length, rows=mine) as loader:
        while next(loader).batches_left:
            pass
        used = loader.counts.used
    found = {"kernel": bytes_of_the_kernel() - before, "counted": METER.bytes_read - counted, "rows": used}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    main()
