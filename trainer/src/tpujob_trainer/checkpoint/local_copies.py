"""Copies of the state on the hosts, between two checkpoints: each process writes what its devices hold.

- A thread saves them; training never waits for the disk. While the disk is busy, this host skips a copy.
- A full or broken disk is logged, and affects nothing else.
- The newest two are kept, because a process may have written the newest one when another has not.
"""

import hashlib
import logging
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tpujob_trainer.checkpoint import layout, local_file
from tpujob_trainer.checkpoint.fingerprint import ALGORITHM, InFlight, leaf_names
from tpujob_trainer.checkpoint.local_file import Header, Index, LocalFile
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.values import errors

logger = logging.getLogger(__name__)

KEPT = 2
CLOSE_SECONDS = 30.0
_SUFFIX = ".state"


class LocalCopies:
    """The copies of one process, in its own folder."""

    def __init__(
        self, directory: str, *, run: str, runtime: Runtime, written: Callable[[bool], None] = lambda is_whole: None
    ) -> None:
        """Nothing is read or written yet.

        Args:
            directory: `checkpoint.local.dir`.
            run: The checkpoint directory, which belongs to one job; files of others are ignored.
            runtime: Of this process.
            written: Called with whether a copy was written completely, in the thread that wrote it.

        Raises:
            ConfigurationError: nothing can be written there.
        """
        self._run = run
        self._written = written
        self._process = (runtime.process_id, runtime.num_processes)
        of_run = f"{Path(run).name}-{hashlib.sha256(run.encode()).hexdigest()[:12]}"
        self._folder = Path(directory) / of_run / f"process-{runtime.process_id}"
        self._writer: threading.Thread | None = None
        self._is_failing = False
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise errors.ConfigurationError(
                f"spec.trainer.checkpoint.local.dir: {directory} cannot be written ({error.strerror}); "
                "mount a volume there (spec.volumes), or drop checkpoint.local"
            ) from error

    def save(
        self, step: int, tree: Any, *, fingerprints: InFlight, name: str, committed: int | None,
        metadata: Mapping[str, Any],
    ) -> bool:  # fmt: skip
        """Starts a copy; returns False if the previous one is still being written. The tree may be donated afterwards.

        Args:
            step: Of the state.
            tree: Of arrays.
            fingerprints: Of the tree.
            name: Of this save, never used before; the same on all processes.
            committed: The newest step in the checkpoint directory, as far as is known.
            metadata: JSON values.
        """
        if self._writer is not None and self._writer.is_alive():
            logger.debug("No local copy of step %d: the one before is still being written", step)
            return False
        shards = _shards(tree)

        def write() -> None:
            header = Header(
                run=self._run,
                step=step,
                save=name,
                committed=committed,
                process=self._process,
                algorithm=ALGORITHM,
                fingerprints=fingerprints.wait().by_leaf,
                metadata=metadata,
            )
            self._write(header, shards)

        self._writer = threading.Thread(target=write, name=f"local-copy-{step}", daemon=True)
        self._writer.start()
        return True

    def found(self, abstract: Any) -> dict[int, LocalFile]:
        """The files, by step, that have every part of such a tree that this process's devices hold."""
        files = {}
        for path in self._folder.glob(f"*{_SUFFIX}"):
            try:
                file = local_file.open_file(path)
            except (OSError, ValueError, KeyError, TypeError) as error:
                logger.warning("A local copy cannot be used: %s", errors.brief(error))
                continue
            header = file.header
            if (header.run, header.process, header.algorithm) != (self._run, self._process, ALGORITHM):
                logger.warning("A local copy cannot be used: %s is of another run or number of processes", path)
            elif _has_all(file, abstract):
                files[header.step] = file
        return files

    def read(self, file: LocalFile, abstract: Any) -> Any:
        """The tree, on the devices of this process.

        Raises:
            OSError: the file cannot be read.
            ValueError: it does not hold what was written.
        """
        leaves, structure = jax.tree.flatten(abstract)
        found = [_placed(file, name, leaf) for name, leaf in zip(leaf_names(abstract), leaves, strict=True)]
        return structure.unflatten(found)

    def discard(self, *, but: int | None = None) -> None:
        """Removes all copies except that of step `but`; waits for the one that is being written."""
        self.wait(None)
        copies = [self._folder / f"{step}{_SUFFIX}" for step in self._steps() if step != but]
        for path in [*copies, *self._folder.glob(f"*{_SUFFIX}{local_file.UNFINISHED}")]:
            path.unlink(missing_ok=True)

    def wait(self, limit_seconds: float | None = CLOSE_SECONDS) -> None:
        """Waits for the copy that is being written."""
        if self._writer is not None:
            self._writer.join(limit_seconds)

    def remove(self) -> None:
        """Removes the folder, when all is committed elsewhere."""
        self.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _steps(self) -> list[int]:
        """The steps of the files with the name of a copy, ascending; files of other programs are ignored."""
        steps = (layout.step_of(path.stem) for path in self._folder.glob(f"*{_SUFFIX}"))
        return sorted(step for step in steps if step is not None)

    def _write(self, header: Header, shards: list[tuple[str, tuple[int, ...], Index, np.ndarray]]) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            local_file.write(self._folder / f"{header.step}{_SUFFIX}", header, shards)
            for step in self._steps()[:-KEPT]:
                (self._folder / f"{step}{_SUFFIX}").unlink(missing_ok=True)
        except OSError as error:
            # One warning for a full disk, however many copies do not fit.
            level = logging.DEBUG if self._is_failing else logging.WARNING
            logger.log(level, "No local copy of step %d in %s: %s", header.step, self._folder, errors.brief(error))
            self._is_failing = True
            self._written(False)
            return
        self._is_failing = False
        self._written(True)
        logger.info("Wrote the local copy of step %d", header.step)


def _shards(tree: Any) -> list[tuple[str, tuple[int, ...], Index, np.ndarray]]:
    """The parts that this process's devices hold, each once, copied to host memory."""
    arrays = [leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    parts = [
        (name, leaf.shape, index, shard.data)
        for name, leaf in zip(leaf_names(tree), arrays, strict=True)
        for index, shard in {_index(s.index, leaf.shape): s for s in leaf.addressable_shards}.items()
    ]
    for _, _, _, data in parts:
        data.copy_to_host_async()
    # A copy: on CPU NumPy sees the device's memory, which the next step overwrites.
    return [(name, shape, index, np.array(data)) for name, shape, index, data in parts]


def _wanted(leaf: jax.ShapeDtypeStruct) -> dict[jax.Device, Index]:
    indices = leaf.sharding.addressable_devices_indices_map(leaf.shape)
    return {device: _index(index, leaf.shape) for device, index in indices.items()}


def _index(index: tuple[slice, ...], shape: tuple[int, ...]) -> Index:
    return tuple((begin, end) for begin, end, _ in (s.indices(size) for s, size in zip(index, shape, strict=True)))


def _has_all(file: LocalFile, abstract: Any) -> bool:
    leaves = dict(zip(leaf_names(abstract), jax.tree.leaves(abstract), strict=True))
    if leaves.keys() != file.header.fingerprints.keys():
        return False
    for name, leaf in leaves.items():
        for index in _wanted(leaf).values():
            shard = file.shards.get((name, index))
            if shard is None or (shard.shape, shard.dtype) != (leaf.shape, str(np.dtype(leaf.dtype))):
                return False
    return True


def _placed(file: LocalFile, name: str, leaf: jax.ShapeDtypeStruct) -> jax.Array:
    wanted = _wanted(leaf)
    values = {index: file.read(name, index) for index in set(wanted.values())}
    parts = [jax.device_put(values[index], device) for device, index in wanted.items()]
    return jax.make_array_from_single_device_arrays(leaf.shape, leaf.sharding, parts)
