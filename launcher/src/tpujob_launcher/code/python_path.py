"""The entries that the launcher puts on PYTHONPATH for a job with code or packages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, List, Mapping, Sequence, Tuple

from tpujob_contract import environment
from tpujob_contract.job_code import PATCHES, SOURCES
from tpujob_launcher.code import interpreter
from tpujob_launcher.code.archive import CodeRefused
from tpujob_launcher.code.install import installed
from tpujob_launcher.code.packages import install_packages
from tpujob_launcher.code.patches import apply_patches


def code_variables(
    environ: Mapping[str, str], scratch: Path, command: Sequence[str] = ()
) -> Tuple[Dict[str, str], List[str]]:
    """The variables with which a program can import the job's code and packages, and log lines about these.

    Args:
        environ: The launcher's environment.
        scratch: An empty folder for patched packages, which must exist as long as the program runs.
        command: The command to run; its Python installs packages, and its search path is used.

    Raises:
        CodeRefused: The folder does not have the job's code, a patch matches no package, or packages are refused.
    """
    folder = Path(environ[environment.CODE]) if environ.get(environment.CODE) else None
    entries, lines = ([], []) if folder is None else _of_code(environ, folder, scratch, command)
    packages, notes = install_packages(environ, command, folder)
    if packages is not None:
        entries.append(str(packages))
    if not entries:
        return {}, []
    inherited = [entry for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return {"PYTHONPATH": os.pathsep.join([*entries, *inherited])}, [*lines, *notes]


def _of_code(
    environ: Mapping[str, str], folder: Path, scratch: Path, command: Sequence[str]
) -> Tuple[List[str], List[str]]:
    """The folders of the code, the one with precedence first, and log lines about them."""
    wanted, found = environ.get(environment.CODE_SHA256), installed(folder)
    if found is None or found != wanted:
        raise CodeRefused(f"spec.code: {folder} holds the code of digest {found}, and the job's is {wanted}")
    lines = [f"code {found[:12]} from {folder}"]
    entries = [str(folder)]
    if (folder / SOURCES).is_dir():
        entries.insert(0, str(folder / SOURCES))
    if (folder / PATCHES).is_dir():
        # Only where packages are installed, without the job's own code.
        places = [entry for entry in interpreter.search_path(command, environ) if entry != environ[environment.CODE]]
        lines += [f"patch {line}" for line in apply_patches(folder / PATCHES, scratch, places)]
        entries.insert(0, str(scratch))
    return entries, lines
