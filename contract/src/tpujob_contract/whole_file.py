"""Replaces files whole: another process reads the old content or the new one, and a full disk leaves the old one."""

import contextlib
import os
from pathlib import Path
from typing import Iterator


@contextlib.contextmanager
def replaced(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """A new empty file beside a file, which takes its place when the block ends without an error.

    Args:
        path: The file, which need not exist; a link is followed.
        mode: Permissions of the new file, before the umask.
    """
    target = path.resolve()
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        unfinished.touch(mode)
        yield unfinished
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
