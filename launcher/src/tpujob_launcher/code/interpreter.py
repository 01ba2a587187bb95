"""The Python that runs a command, and where it finds packages: not always the launcher's own."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import List, Mapping, Optional, Sequence

ANSWER_SECONDS = 60
"""Time for an interpreter to start on a slow disk."""
FIRST_LINE_BYTES = 512
TELL = "import sys; print('\\n'.join(sys.path))"


def search_path(command: Sequence[str], environ: Mapping[str, str]) -> List[str]:
    """The search path of a command's Python; the launcher's own if the command is not a Python program."""
    python = python_of(command, environ)
    found = list(sys.path)
    if python is not None and python != sys.executable:
        try:
            told = subprocess.run(
                [python, "-c", TELL],
                env=dict(environ),
                capture_output=True,
                text=True,
                timeout=ANSWER_SECONDS,
                check=True,
            )
            found = told.stdout.splitlines()
        except (OSError, subprocess.SubprocessError):
            # The program itself reports why it does not start.
            pass
    return [entry for entry in found if entry and Path(entry).is_dir()]


def python_of(command: Sequence[str], environ: Mapping[str, str]) -> Optional[str]:
    """The interpreter of `python3 train.py`, or of a script with a shebang line; None: another program."""
    program = shutil.which(command[0], path=environ.get("PATH")) if command else None
    if program is None or _is_python(program):
        return program
    try:
        with Path(program).open("rb") as file:
            first = file.readline(FIRST_LINE_BYTES)
    except OSError:
        return None
    words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
    named = [word for word in words if _is_python(word)]
    return shutil.which(named[0], path=environ.get("PATH")) if named else None


def _is_python(program: str) -> bool:
    return Path(program).name.startswith("python")
