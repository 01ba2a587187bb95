"""Names of directories, as people give them."""

from __future__ import annotations

import os
from pathlib import Path


def absolute(name: str) -> str:
    """A path as an absolute one, an address as it is: the programs that read it may run in another folder."""
    return name if "://" in name else os.path.abspath(Path(name).expanduser())  # noqa: PTH100 - resolve follows links
