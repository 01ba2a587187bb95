"""`spec.packages`: installs Python packages that neither the image nor the code has, before the program starts.

The pip of the program's own Python installs them into a folder of this user in the temporary directory, because the
image may be read-only, and is not changed. The folder's name is a digest of its packages, so the processes of a machine
and later attempts of the same container share it. Each package is pinned by its digest, or is part of the job's code,
so all hosts have the same. No package is built from source: options in a requirements file, and other files that the
environment or a pip.conf names, would allow it, so pip gets neither, only pins that are written anew.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from tpujob_contract import ExitCode, environment
from tpujob_contract.requirement_pins import read_pins
from tpujob_launcher.code import interpreter
from tpujob_launcher.code.archive import CodeRefused
from tpujob_launcher.code.patience import Unanswered, asked, times_of

FIELD = "spec.packages"
FOLDER = "tpujob-packages-{}"
"""A user's folder in the temporary directory, with a folder for each set of packages."""
LIMIT_SECONDS = 1800
"""Limit for one try; pip has its own limits for each request."""
_UNREACHABLE = (
    "NewConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionResetError", "ProtocolError",
    "NameResolutionError", "Max retries exceeded", "Connection broken", "503 ", "502 ", "429 ",
)  # fmt: skip
"""Texts that pip prints for errors after which a retry may help."""


def install_packages(
    environ: Mapping[str, str], command: Sequence[str], code: Optional[Path]
) -> Tuple[Optional[Path], List[str]]:
    """The folder with the job's packages, and log lines about them; None: the job has no packages.

    Args:
        environ: The launcher's environment.
        command: The command to run; its Python installs and imports the packages.
        code: Folder of the job's code, to which paths are relative; None: the current folder.

    Raises:
        CodeRefused: The files do not exist, pip is missing or refuses them, or an index is unreachable.
    """
    named = {key: environ.get(name, "") for key, name in _VARIABLES.items()}
    if not any(named.values()):
        return None, []
    found = {key: (code or Path.cwd()) / path for key, path in named.items() if path}
    for key, path in found.items():
        if not path.exists():
            raise CodeRefused(f"{FIELD}.{key}: {path} is not there; is it in the job's code?", ExitCode.CONFIGURATION)
    python = interpreter.python_of(command, environ) or sys.executable
    pins, began = _pins(found), time.monotonic()
    place = _own_folder() / hashlib.sha256("\n".join([os.path.realpath(python), *pins]).encode()).hexdigest()[:32]
    with _locked(place.with_suffix(".lock")):
        is_new = not place.is_dir()
        if is_new:
            requirements = place.with_suffix(".txt")
            requirements.write_text("\n".join(pins))
            arguments = [*_OPTIONS, *_sources(found), "--requirement", str(requirements)]
            _install(place, [*_pip_for(python, environ), "install", *arguments], {**environ, **_NO_OTHER_FILES})
    count = len(list(place.glob("*.dist-info")))
    how = f"in {time.monotonic() - began:.1f} s, by {python}" if is_new else "are there already"
    return place, [f"packages: {count} {how}"]


def _install(place: Path, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    """Creates the folder atomically."""
    unfinished = place.with_suffix(".unfinished")

    def once() -> None:
        shutil.rmtree(unfinished, ignore_errors=True)
        _run([*arguments, "--target", str(unfinished)], environ)

    try:
        asked(once, times_of(environ))
        unfinished.rename(place)
    except OSError as error:
        raise CodeRefused(str(error), exit_code=1) from error


def _own_folder() -> Path:
    """This user's folder, to which others cannot write.

    Raises:
        CodeRefused: Another user created it, or may write to it.
    """
    folder = Path(tempfile.gettempdir()) / FOLDER.format(os.geteuid())
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    made = folder.lstat()
    if not stat.S_ISDIR(made.st_mode) or made.st_uid != os.geteuid() or made.st_mode & 0o022:
        raise CodeRefused(f"{FIELD}: {folder} is not this user's alone; remove it")
    return folder


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield


_VARIABLES: Dict[str, str] = {"requirements": environment.REQUIREMENTS, "wheels": environment.WHEELS}
_OPTIONS = (
    "--quiet", "--no-input", "--disable-pip-version-check", "--only-binary=:all:", "--require-hashes", "--no-compile",
)  # fmt: skip
_NO_OTHER_FILES = {"PIP_REQUIREMENT": os.devnull, "PIP_CONSTRAINT": os.devnull}
"""Variables that take precedence over any pip.conf; a file that one of them names may have options."""


def _pip_for(python: str, environ: Mapping[str, str]) -> List[str]:
    """The pip command of a Python, or of the base Python of its virtual environment.

    Raises:
        CodeRefused: Neither has pip.
    """
    has_pip, base = _looked_at(python, environ)
    if has_pip:
        return [python, _ALONE, "-m", "pip"]
    for other in (Path(base, "bin", name) for name in ("python3", "python")):
        if base and other.exists() and _looked_at(str(other), environ)[0]:
            return [str(other), _ALONE, "-m", "pip", "--python", python]
    raise CodeRefused(f"{FIELD}: {python} has no pip; install it in the image, or leave packages out")


_ALONE = "-I"
"""Isolates pip from PYTHONPATH and the current folder, where the job's own modules may shadow those of pip."""
_WHERE = "import importlib.util, sys; print(importlib.util.find_spec('pip') is not None, sys.base_prefix)"


def _looked_at(python: str, environ: Mapping[str, str]) -> Tuple[bool, str]:
    """Whether a Python has pip, and the prefix of its base Python."""
    done = subprocess.run(
        [python, _ALONE, "-c", _WHERE], env=dict(environ), capture_output=True, text=True, check=False
    )
    has_pip, _, base = done.stdout.strip().partition(" ")
    return has_pip == "True", base


def _sources(found: Mapping[str, Path]) -> List[str]:
    """The arguments of pip that select where packages come from."""
    if "wheels" not in found:
        return []
    return ["--no-index", "--find-links", str(found["wheels"]), *([] if "requirements" in found else ["--no-deps"])]


def _pins(found: Mapping[str, Path]) -> List[str]:
    """The lines of the requirements file that pip gets.

    Raises:
        CodeRefused: The job's file has something else than pins, or the folder has no wheels.
    """
    if "requirements" in found:
        try:
            return read_pins(found["requirements"].read_text("utf-8-sig"))
        except (ValueError, OSError) as error:
            raise CodeRefused(f"{FIELD}.requirements: {found['requirements']}: {error}") from error
    files = sorted(found["wheels"].glob("*.whl"))
    if not files:
        raise CodeRefused(f"{FIELD}.wheels: there is no .whl file in {found['wheels']}; put them there")
    return [f"{file.absolute().as_uri()} --hash=sha256:{_digest(file)}" for file in files]


def _digest(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        for piece in iter(lambda: opened.read(1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()


def _run(arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    # The addresses of indexes may contain passwords: pip hides them in its own messages, and only these are repeated.
    try:
        done = subprocess.run(arguments, env=dict(environ), capture_output=True, text=True, timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired as late:
        raise Unanswered(f"{FIELD}: pip has not ended within {LIMIT_SECONDS} s") from late
    if done.returncode == 0:
        return
    output = " ".join(done.stderr.split())
    error = output[max(output.find("ERROR:"), 0) :][:_SHOWN]
    if any(sign in output for sign in _UNREACHABLE):
        raise Unanswered(f"{FIELD}: {error}")
    raise CodeRefused(f"{FIELD}: pip: {error}")


_SHOWN = 600
"""Characters of pip's output that are shown, from its first error on: package and digest follow it."""
