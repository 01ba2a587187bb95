"""Directory names, as users give them."""

from __future__ import annotations

import os
from pathlib import Path


def absolute(name: str) -> str:
    """The absolute path, or an address unchanged: the programs that read it may run in another folder."""
    return name if "://" in name else os.path.abspath(Path(name).expanduser())  # noqa: PTH100 - resolve follows links
