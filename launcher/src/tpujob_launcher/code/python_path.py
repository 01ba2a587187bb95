"""The entries that the launcher puts on PYTHONPATH for a job with code or packages, and patches of installed packages.

The image's own files are read-only and may be shared. A patched package is therefore mirrored: a folder tree of links
to its files, with the patched files in their places, comes first on PYTHONPATH. It also has the data files that a
package reads beside its modules.

`NAME.sha256` beside a file, as `sha256sum` writes it, has the digest of the original that the file was made for. With
another original the patch is refused, so that a newer image does not silently run an older file.
"""

import hashlib
import importlib.machinery
import os
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from tpujob_contract import environment
from tpujob_contract.job_code import PATCHES, SOURCES
from tpujob_launcher.code import interpreter
from tpujob_launcher.code.archive import CodeRefused
from tpujob_launcher.code.install import installed
from tpujob_launcher.code.packages import install_packages

SUFFIX = ".sha256"


def apply_patches(patches: Path, overlay: Path, search_path: Sequence[str]) -> List[str]:
    """Builds the overlay in an empty folder; returns a line for each file that says what it replaces.

    Args:
        patches: Folder whose entries have the names of packages: `maxtext/layers/attentions.py`.
        overlay: The empty folder, to be put on PYTHONPATH before the packages.
        search_path: Where packages are installed, as in `sys.path`.

    Raises:
        CodeRefused: A package is not installed, or a file was made for another original.
    """
    lines = []
    for top in sorted(patches.iterdir()):
        if top.name.startswith(".") or _is_digest(top):
            continue
        originals = _originals(top, search_path)
        if not top.is_dir():
            (overlay / top.name).symlink_to(top)
            lines.append(f"{top.name} in the place of {_known(originals[0], top, top.name)}")
            continue
        files = (file for file in sorted(top.rglob("*")) if file.is_file() and not _is_digest(file))
        patched = {str(file.relative_to(top)): file for file in files}
        for original in originals:
            _mirror(original, overlay / top.name, set(patched))
        for name, file in patched.items():
            place = overlay / top.name / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(file)
            there = next((o / name for o in originals if (o / name).exists()), None)
            known = _known(there, file, f"{top.name}/{name}")
            lines.append(f"{top.name}/{name} " + (f"in the place of {known}" if there else f"added to {originals[0]}"))
    return lines


def _is_digest(file: Path) -> bool:
    """Whether a file is the digest of the one beside it."""
    return file.suffix == SUFFIX and file.with_suffix("").is_file()


def _known(original: Optional[Path], patch: Path, name: str) -> str:
    """The path and digest of the original, for a message.

    Raises:
        CodeRefused: The patch was made for another one.
    """
    digest = "" if original is None else hashlib.sha256(original.read_bytes()).hexdigest()
    beside = patch.with_name(patch.name + SUFFIX)
    if beside.is_file():
        wanted = (beside.read_text(encoding="utf-8", errors="replace").split() or [""])[0].lower()
        if wanted != digest:
            here = f"{original} has {digest}" if original is not None else "the package has no such file"
            raise CodeRefused(
                f"patches/{name} was made for a file of SHA-256 {wanted or '(nothing)'}, and {here}; compare the patch "
                f"with it, and write its digest into patches/{name}{SUFFIX}"
            )
    return f"{original}, SHA-256 {digest}"


def _originals(top: Path, search_path: Sequence[str]) -> List[Path]:
    """The folders of an installed package, or the file of a module."""
    name = top.stem if top.is_file() else top.name
    spec = importlib.machinery.PathFinder.find_spec(name, list(search_path))
    if spec is None or (top.is_dir() and not spec.submodule_search_locations):
        raise CodeRefused(
            f"patches/{top.name}: no installed package has that name; name the folder as the package is imported"
        )
    if top.is_dir():
        return [Path(place) for place in spec.submodule_search_locations or ()]
    return [Path(spec.origin or "")]


def _mirror(original: Path, mirror: Path, without: Set[str]) -> None:
    """Mirrors a folder with links to its files, except those in `without`, which are paths relative to `original`."""
    for folder, folders, files in os.walk(original, followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        relative = Path(folder).relative_to(original)
        (mirror / relative).mkdir(parents=True, exist_ok=True)
        for name in files:
            place = mirror / relative / name
            if str(relative / name) not in without and not place.exists():
                place.symlink_to(Path(folder) / name)


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
