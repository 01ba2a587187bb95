"""Damages each object of the newest checkpoint in each way, restores, and prints what came of it, as lines of JSON.

One process on its own. Configuration in CASE: directory, and the bucket if it is on one.
"""

import faulthandler
import json
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp

from tests.multiprocess.bucket import Bucket
from tpujob_trainer.checkpoint import layout
from tpujob_trainer.checkpoint.checkpoints import Checkpoints
from tpujob_trainer.checkpoint.retention import Listener, Retention, Settings
from tpujob_trainer.distributed import kv_store
from tpujob_trainer.distributed.initialize import Runtime

OLDER, NEWEST = 2, 4
LIMIT_SECONDS = 60.0
ROW_SECONDS = 90.0
"""After which one damage hangs, and says where."""
WAYS = {
    "deleted": lambda content: None,
    "truncated": lambda content: content[: len(content) // 2],
    "emptied": lambda content: b"",
    "flipped": lambda content: content[: len(content) // 2] + _flipped(content[len(content) // 2 :]),
}


class Files:
    """The objects of a folder."""

    def __init__(self, directory: str) -> None:
        self._root = Path(directory)
        self._pristine = self._root.with_name("pristine")

    def keep(self) -> None:
        shutil.copytree(self._root, self._pristine)

    def restore(self) -> None:
        shutil.rmtree(self._root)
        shutil.copytree(self._pristine, self._root)

    def names(self) -> list[str]:
        root = self._root / "steps" / str(NEWEST)
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())

    def read(self, name: str) -> bytes:
        return (self._root / "steps" / str(NEWEST) / name).read_bytes()

    def write(self, name: str, content: bytes | None) -> None:
        path = self._root / "steps" / str(NEWEST) / name
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)


class Objects:
    """The objects of a bucket."""

    def __init__(self, bucket: Bucket, directory: str) -> None:
        self._bucket = bucket
        self._prefix = directory.removeprefix(f"gs://{bucket.name}/")
        self._kept: dict[str, bytes] = {}
        self._changed: set[str] = set()

    def keep(self) -> None:
        names = self._bucket.objects(f"{self._prefix}/steps/")
        self._kept = {name: self._bucket.read(name) for name in names}

    def restore(self) -> None:
        there = set(self._bucket.objects(f"{self._prefix}/steps/"))
        for name in there - self._kept.keys():
            self._bucket.delete(name)
        for name in {*self._changed, *(self._kept.keys() - there)}:
            self._bucket.write(name, self._kept[name])
        self._changed.clear()

    def names(self) -> list[str]:
        root = f"{self._prefix}/steps/{NEWEST}/"
        return sorted(name.removeprefix(root) for name in self._bucket.objects(root) if not name.endswith("/"))

    def read(self, name: str) -> bytes:
        return self._bucket.read(f"{self._prefix}/steps/{NEWEST}/{name}")

    def write(self, name: str, content: bytes | None) -> None:
        path = f"{self._prefix}/steps/{NEWEST}/{name}"
        self._changed.add(path)
        if content is None:
            self._bucket.delete(path)
        else:
            self._bucket.write(path, content)


def main() -> None:
    case = json.loads(os.environ["CASE"])
    directory = case["directory"]
    storage = Objects(Bucket(**case["bucket"]), directory) if case["bucket"] else Files(directory)
    saved = {step: tree(step) for step in (OLDER, NEWEST)}
    checkpoints = new_checkpoints(directory, [])
    for step, values in saved.items():
        checkpoints.save(step, values)
        assert checkpoints.finish(LIMIT_SECONDS)
    storage.keep()
    abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), saved[OLDER])
    for name in storage.names():
        for way, content in changed(storage.read(name)):
            faulthandler.dump_traceback_later(ROW_SECONDS, exit=True)
            storage.write(name, content)
            row = {"object": name, "way": way, **outcome(directory, abstract, saved)}
            sys.stdout.write(json.dumps(row) + "\n")
            storage.restore()


def changed(content: bytes) -> Iterator[tuple[str, bytes | None]]:
    for way, change in WAYS.items():
        after = change(content)
        if after != content:
            yield way, after


def outcome(directory: str, abstract: object, saved: dict) -> dict:
    unusable: list[str] = []
    checkpoints = new_checkpoints(directory, unusable)
    restored = checkpoints.restore(abstract)
    assert restored is not None
    # What is no checkpoint is deleted in the background.
    checkpoints.close()
    step, found = restored
    same = jax.tree.map(lambda one, other: bool((bits(one) == bits(other)).all()), found, saved[step])
    return {
        "restored": step,
        "is_what_was_saved": all(jax.tree.leaves(same)),
        "why": unusable,
        "still_there": layout.committed(directory),
    }


def bits(leaf: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(leaf, jnp.uint16 if leaf.dtype.itemsize == 2 else jnp.uint32)


def tree(step: int) -> dict:
    keys = jax.random.split(jax.random.key(step), 2)
    return {
        "weights": jax.random.normal(keys[0], (64, 64), jnp.float32),
        "moments": jax.random.normal(keys[1], (64, 64)).astype(jnp.bfloat16),
        "step": jnp.int32(step),
    }


def new_checkpoints(directory: str, unusable: list[str]) -> Checkpoints:
    return Checkpoints(
        directory,
        Settings(retention=Retention(last=10)),
        Runtime(0, 1, "0.0-x", "here", kv_store.alone()),
        listener=Listener(unusable=lambda step, why: unusable.append(f"{step}: {why}")),
    )


def _flipped(content: bytes) -> bytes:
    return bytes([content[0] ^ 0b100]) + content[1:] if content else content


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    main()
