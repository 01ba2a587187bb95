"""Storage for all rooms above: addresses are opened, listed, read in ranges or whole, and written, also conditionally.

`open_bucket` is for small objects that several processes write, `directory` for many files and one listing of them,
`remote` for ranges of large files with retries, `filesystems.located` for writers of whole folders.
"""

import functools
import os
from pathlib import Path

from tpujob_contract import storage_address
from tpujob_trainer.storage.bucket import Bucket, Stored, is_local, pattern_problem

__all__ = ["Bucket", "Stored", "is_local", "open_bucket", "pattern_problem"]


def open_bucket(url: str | os.PathLike[str]) -> Bucket:
    """The bucket at a `gs://` address, a local path, or any other URL that fsspec opens. Nothing is read yet."""
    return _open(str(Path(url).absolute()) if is_local(url) else str(url).rstrip("/"))


@functools.cache
def _open(url: str) -> Bucket:
    # Imported here: the libraries are slow to import, and a process needs one of them.
    if is_local(url) or storage_address.is_bucket(url):
        from tpujob_trainer.storage.tensorstore_bucket import TensorStoreBucket

        return TensorStoreBucket(url)
    from tpujob_trainer.storage.fsspec_bucket import FsspecBucket

    return FsspecBucket(url)
