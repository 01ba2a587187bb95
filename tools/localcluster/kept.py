"""Where this machine keeps what takes long to make: built programs, images, what the node has of them.

`.cache` of the checkout, or the folder TESTS_CACHE: then all checkouts of a machine share it, as CI's do.
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
    """One at a time on this machine makes something in the folder; the kernel drops the lock with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
