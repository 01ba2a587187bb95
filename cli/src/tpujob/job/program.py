"""The job of a program without a job file: `tpujob run train.py --accelerator cpu:2x2`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tpujob.errors import CommandError
from tpujob_contract import ExitCode, kubernetes_names

ACCELERATOR = "cpu:1x1"
"""The default of --accelerator: one process."""
IMAGE = "this-machine"
"""A placeholder for the image, which only pods need."""


def is_program(file: Path) -> bool:
    """Whether a file is a Python program rather than a job."""
    return file.suffix == ".py"


def job_of(program: Path, arguments: Sequence[str], accelerator: str | None) -> dict[str, Any]:
    """The manifest of a job that runs a program with its arguments.

    Raises:
        CommandError: there is no such program.
    """
    if not program.is_file():
        raise CommandError(f"{program}: no such file; name a program or a job", exit_code=ExitCode.NOT_FOUND)
    name = re.sub(r"[^a-z0-9]+", "-", program.stem.lower()).strip("-")[:40] or "program"
    return {
        "apiVersion": kubernetes_names.API_VERSION,
        "kind": kubernetes_names.KIND,
        "metadata": {"name": name if name[0].isalpha() else f"program-{name}"},
        "spec": {
            "accelerator": accelerator or ACCELERATOR,
            "image": IMAGE,
            "command": ["python3", str(program), *arguments],
        },
    }


def command_line(
    file: Path,
    arguments: Sequence[str],
    accelerator: str | None,
    settings: Sequence[str] = (),
    machines: Sequence[str] = (),
) -> str:
    """The command line that runs a file again."""
    options = ["--accelerator", accelerator] if accelerator else []
    options += [*(part for setting in settings for part in ("--set", setting)), *machines]
    return shlex.join(["tpujob", "run", str(file), *options, *(["--", *arguments] if arguments else [])])
