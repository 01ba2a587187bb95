"""One process of a run that reads a data set of the hub: no devices, the loader alone.

Arguments: configuration as JSON, folder of the run, process, processes, batch rows, sequence length, batches. Process 0
finds the data and says where it is; the others are told, as by the coordination of a run. `state.npy` in the folder is
where an attempt goes on.
"""

import json
import sys
from pathlib import Path

import numpy as np

from tpujob_trainer import data
from tpujob_trainer.storage.read_meter import METER


def say(**values):
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def main() -> None:
    config = data.DataConfig(**json.loads(sys.argv[1]))
    folder, process, processes, rows, length, batches = sys.argv[2], *map(int, sys.argv[3:])
    if process == 0:
        manifest = data.kept_manifest(folder, config, batch_size=rows)
        say(roots=[source.root for source in manifest.sources])
    else:
        kept = data.read_manifest(folder, config, roots=json.loads(sys.stdin.readline())["roots"])
        assert kept is not None
        manifest = kept
    plan = data.plan_lanes(manifest, config, batch_size=rows, seed=0)
    listed = METER.requests
    mine = np.array_split(np.arange(rows), processes)[process]
    path = Path(folder, "state.npy")
    state = np.load(path) if path.exists() else None
    with data.BatchLoader(manifest, data.load_tokenizer(config), plan, length, rows=mine, state=state) as loader:
        taken = [next(loader) for _ in range(batches)]
        used = loader.counts.used
    say(
        inputs=[batch.inputs.tolist() for batch in taken],
        state=taken[-1].state.tolist(),
        rows=used,
        bytes=METER.bytes_read,
        requests=METER.requests - listed,
        retries=dict(METER.retries),
    )


if __name__ == "__main__":
    main()
