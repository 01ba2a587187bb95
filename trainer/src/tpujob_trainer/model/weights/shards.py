"""Writes the folder of a model: its safetensors files, one or several, the index of several, and other files."""

import contextlib
import functools
import json
import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from tpujob_trainer.model.weights.safetensors import DTYPES, INDEX, SINGLE, header_of
from tpujob_trainer.storage.filesystems import is_on_disk, located

logger = logging.getLogger(__name__)

FILE_BYTES = 50_000_000_000
"""Most bytes of one file, as in transformers."""
_SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")


type Agree = Callable[[str, Exception | None], None]
"""Waits for all processes, by a name that is used once. Each passes its error, or None; if one passes an error, it
raises on all of them."""


def alone(name: str, trouble: Exception | None) -> None:
    """An `Agree` of one process: raises its own error."""
    if trouble is not None:
        raise trouble


def tried(act: Callable[[], None]) -> Exception | None:
    """Runs `act` and returns the error that storage raises, of any class of its library; None: it succeeded.

    Raises:
        RuntimeError, ValueError: not from storage, but from JAX, if another process is lost.
    """
    try:
        act()
    except (RuntimeError, ValueError):
        raise
    except Exception as error:  # noqa: BLE001 - libraries have classes of their own for what a bucket answers
        return error
    return None


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as it will be stored."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """A key of `DTYPES`."""

    @property
    def num_bytes(self) -> int:
        """Size of the stored tensor."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


def write_folder[Kept: StoredTensor](
    path: str,
    tensors: Sequence[Kept],
    collect: Callable[[list[Kept], bool], Iterator[np.ndarray]],
    beside: Mapping[str, bytes],
    *,
    file_bytes: int = FILE_BYTES,
    agree: Agree = alone,
) -> None:
    """Writes a model; all processes must call it, and the files are distributed among them.

    A process whose storage fails still takes part in gathering what the others write: they end together, in `agree`.

    Args:
        path: the folder; local, or a URL. Files in it of the same names are overwritten.
        tensors: in the order in which they are stored.
        collect: yields tensors whole, one at a time; called on all processes, with whether this one writes them.
        beside: content of small files, by name; the last one is written last, and a folder that has it is complete.
        file_bytes: most bytes of a file, unless it has a single larger tensor.
        agree: waits for all processes.

    Raises:
        OSError: the folder cannot be written to; with several processes, what `agree` raises.
    """
    began = time.monotonic()
    filesystem, folder = located(path)
    files = in_files(tensors, file_bytes)
    mine = jax.process_index()

    def empty() -> None:
        filesystem.makedirs(folder, exist_ok=True)
        _remove_former(filesystem, folder, {*files}, last=[*beside][-1])

    agree("export/empty", tried(empty) if mine == 0 else None)
    trouble: Exception | None = None
    for number, (file, stored) in enumerate(files.items()):
        writes = number % jax.process_count() == mine
        content = collect(stored, writes)
        if writes and trouble is None:
            write = functools.partial(_write_file, filesystem, f"{folder}/{file}", stored, content)
            trouble = tried(write)
        for _ in content:
            pass
    agree("export/files", trouble)

    def finish() -> None:
        index = {INDEX: _index_of(files)} if len(files) > 1 else {}
        for name, small in {**index, **beside}.items():
            filesystem.pipe_file(f"{folder}/{name}", small)

    agree("export/done", tried(finish) if mine == 0 else None)
    logger.info("Exported to %s: files=%d seconds=%.1f", path, len(files), time.monotonic() - began)


def _remove_former(filesystem: Any, folder: str, names: set[str], *, last: str) -> None:
    """Removes files of a former export that would mix with these; first the file that marks it as complete."""
    filesystem.invalidate_cache()
    try:
        listed = filesystem.ls(folder, detail=False)
    except FileNotFoundError:  # a bucket has no folders without objects
        return
    former = {str(path).rpartition("/")[2] for path in listed}
    weights = {name for name in former if name == SINGLE or _SHARD.fullmatch(name)} - names
    for name in [name for name in (last, INDEX) if name in former] + sorted(weights):
        filesystem.rm_file(f"{folder}/{name}")


def in_files[Kept: StoredTensor](pieces: Sequence[Kept], most: int) -> dict[str, list[Kept]]:
    """Tensors by the name of their file, each of at most `most` bytes, unless it has a single larger tensor."""
    groups: list[list[Kept]] = [[]]
    size = 0
    for piece in pieces:
        more = piece.num_bytes
        if groups[-1] and size + more > most:
            groups.append([])
            size = 0
        groups[-1].append(piece)
        size += more
    if len(groups) == 1:
        return {SINGLE: groups[0]}
    return {f"model-{at + 1:05}-of-{len(groups):05}.safetensors": group for at, group in enumerate(groups)}


def _index_of(files: Mapping[str, Sequence[StoredTensor]]) -> bytes:
    pieces = [(file, piece) for file, group in files.items() for piece in group]
    size = sum(piece.num_bytes for _, piece in pieces)
    content = {"metadata": {"total_size": size}, "weight_map": {piece.name: file for file, piece in pieces}}
    return (json.dumps(content, indent=2) + "\n").encode()


def _write_file(filesystem: Any, target: str, pieces: Sequence[StoredTensor], content: Iterator[np.ndarray]) -> None:
    """Writes tensors into a file, which appears complete or not at all."""
    types = {piece.name: piece.dtype for piece in pieces}
    header, _ = header_of({piece.name: piece.shape for piece in pieces}, types)
    written = f"{target}.partial" if is_on_disk(filesystem) else target  # an object appears complete
    try:
        with contextlib.closing(filesystem.open(written, "wb")) as file:
            file.write(header)
            for array in content:
                file.write(np.ascontiguousarray(array).tobytes())
    except BaseException:
        with contextlib.suppress(OSError):
            filesystem.rm_file(written)
        raise
    if written != target:
        filesystem.mv(written, target)
