"""The installed versions, in a short form that the hosts of a run can compare.

All hosts get the same image by name. If its tag is pushed again, the next host that pulls it gets another image, and
processes whose code differs in one place hang, or worse.
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
"""Packages that are listed by name; a hash covers all installed ones."""
INSTALLED = "all installed packages"
CODE = "the trainer's own code"
JOB_CODE = "the job's code (spec.code)"


def versions(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The versions of Python and of `PACKAGES`, and hashes of all packages, the trainer's code and the job's code."""
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
    """Names with versions, from the names of the dist-info folders: reading their metadata takes a second."""
    return sorted({path.stem for entry in sys.path for path in Path(entry or ".").glob("*.dist-info")})


def _code(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*.py"))
    return _hash(*(f"{path.relative_to(folder)}{os.linesep}{path.read_text()}" for path in files))


def _hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
