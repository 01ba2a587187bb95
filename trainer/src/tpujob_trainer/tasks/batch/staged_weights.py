"""Weights on the Hugging Face hub, copied once for all workers of a job.

Workers that start together would each read all weights from the hub, which limits the requests of a network. So one
worker copies the files into the checkpoint directory, and all workers and later attempts read them there.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from tpujob_contract import IndependentWorker, Process
from tpujob_trainer.corpus.workers import claims
from tpujob_trainer.data.sources.files import DataFile, DataRoot, list_files
from tpujob_trainer.model.weights.companions import FROM as FIELD
from tpujob_trainer.storage import Bucket
from tpujob_trainer.storage.filesystems import is_hub, located

logger = logging.getLogger(__name__)

FOLDER = "weights"
CHUNK_BYTES = 32 << 20
"""Size of one read, which is held in memory."""
LEASE_SECONDS = 45.0
"""If the worker that copies does not renew its lease for this time, another one starts over."""
WANTED = (".safetensors", ".json")


def staged(path: str, objects: Bucket, worker: str, process: Process, tick: Callable[[], object]) -> str:
    """The path to read weights from: the given one, or that of the copy of weights on the hub.

    Args:
        path: As the user wrote it.
        objects: Of the checkpoint directory.
        worker: Name of this worker.
        process: Of this worker; a single worker reads from the hub.
        tick: Called repeatedly during the copy, in this worker or another.

    Raises:
        NotFoundError: there are no such files, or they cannot be read.
    """
    workers = process.workers if isinstance(process, IndependentWorker) else 1
    if workers == 1 or not is_hub(located(path)[0]):
        return path
    digest = hashlib.blake2b(path.encode(), digest_size=8).hexdigest()
    folder = f"{objects.url}/{FOLDER}/{digest}"

    def wait(seconds: float) -> None:
        tick()
        time.sleep(seconds)

    claims.once(
        objects,
        worker,
        f"{FOLDER}-{digest}",
        lambda: json.dumps({"from": path, **_copied(path, folder, tick)}).encode(),
        lapse_seconds=LEASE_SECONDS,
        renew_seconds=LEASE_SECONDS / 4,
        wait=wait,
    )
    return folder


def _copied(path: str, folder: str, tick: Callable[[], object]) -> dict[str, Any]:
    """Copies the weights; returns the root, the files and their bytes."""
    began = time.monotonic()
    root, files = list_files(path, FIELD)
    wanted = [file for file in files if PurePosixPath(file.path).suffix in WANTED and "/" not in file.path]
    filesystem, target = located(folder)
    filesystem.makedirs(target, exist_ok=True)
    for file in wanted:
        _copy(root, file, filesystem, f"{target}/{file.path}", tick)
    total = sum(file.size for file in wanted)
    seconds = time.monotonic() - began
    logger.info("Weights for all workers: %s copied to %s: bytes=%d seconds=%.1f", path, folder, total, seconds)
    return {"root": root.url, "files": [file.path for file in wanted], "bytes": total}


def _copy(root: DataRoot, file: DataFile, filesystem: Any, target: str, tick: Callable[[], object]) -> None:
    with root.open(file.path, file.size) as source, filesystem.open(target, "wb") as sink:
        left = file.size
        while left:
            chunk = source.read(min(CHUNK_BYTES, left))
            if not chunk:
                raise OSError(f"{file.path} ended {left} bytes too early")
            sink.write(chunk)
            left -= len(chunk)
            tick()
