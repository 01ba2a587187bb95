"""The cache of what takes long to build on this machine: programs, images, and the node's copies of the images.

It is `.cache` in the checkout, or the folder TESTS_CACHE, which all checkouts of a machine share, as in CI.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "TESTS_CACHE"
FOLDER = Path(os.environ.get(VARIABLE) or Path(__file__).parents[2] / ".cache").absolute()


@contextmanager
def exclusively(folder: Path) -> Iterator[None]:
    """Holds this machine's lock on the folder for the block; the kernel releases it if the process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
