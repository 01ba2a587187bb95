"""What is installed here, in a few words that two hosts of a run can compare.

All hosts are given the same image by name. A tag that was pushed again means another one on the next host that pulls
it, and code that differs in one place between processes hangs them, or worse.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from tpujob_contract import environment

PACKAGES = ("tpujob-trainer", "jax", "jaxlib", "libtpu", "flax", "optax", "orbax-checkpoint")
"""Listed by name; of all others a hash."""
INSTALLED = "all installed packages"
CODE = "the trainer's own code"
JOB_CODE = "the job's code (spec.code)"


def versions(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Python, the packages that matter by version, and hashes: of all packages, of the trainer's code, of the job's."""
    named = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            named[name] = importlib.metadata.version(name)
    return {
        "python": platform.python_version(),
        **named,
        INSTALLED: _hash(*_installed()),
        CODE: _code(Path(__file__).parents[1]),
        **({JOB_CODE: environ[environment.CODE_SHA256]} if environ.get(environment.CODE_SHA256) else {}),
    }


def _installed() -> list[str]:
    """Names with versions, as the folders are called that installers leave: reading their metadata takes a second."""
    return sorted({path.stem for entry in sys.path for path in Path(entry or ".").glob("*.dist-info")})


def _code(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*.py"))
    return _hash(*(f"{path.relative_to(folder)}{os.linesep}{path.read_text()}" for path in files))


def _hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
