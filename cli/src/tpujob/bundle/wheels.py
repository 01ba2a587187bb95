"""Wheels: those that lock files name, chosen and downloaded by pip, and our own, built by it.

A wheel counts if the lock file has its SHA-256, wherever it was found: in the folder, in an older bundle, in an index.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.markers import InvalidMarker, Marker

from tpujob.bundle.checksums import sha256
from tpujob.output.errors import CommandError
from tpujob_contract.requirement_pins import read_pins

PYTHON = re.compile(r"3\.\d+")
NEWEST_GLIBC = 36
"""Minor version of the newest glibc that wheels may need: that of Debian 12, on which the images are based."""
PLATFORMS = [f"--platform=manylinux_2_{minor}_x86_64" for minor in range(NEWEST_GLIBC, 4, -1)]
PLATFORMS += [f"--platform=manylinux{year}_x86_64" for year in ("2014", "2010", "1")]


def pins_for(lock: str, python: str) -> list[str]:
    """The pins of a lock file that a Python needs on this kind of machine, without their markers.

    Raises:
        ValueError: A line is not pinned with hashes.
    """
    pins = []
    version = {"python_version": python, "python_full_version": f"{python}.0"}
    for requirement in read_pins(lock):
        pinned, *hashes = requirement.split(" --hash=")
        pin, _, marker = pinned.partition(";")
        try:
            if not marker or Marker(marker).evaluate(version):
                pins.append(" ".join([pin.strip(), *(f"--hash={text}" for text in hashes)]))
        except InvalidMarker as error:
            raise ValueError(f"{pinned!r}: {error}") from None
    return pins


def fetch_wheels(
    lock: str, pythons: Sequence[str], folder: Path, seeds: Sequence[Path], announce: Callable[[str], object]
) -> None:
    """Makes a folder hold the wheels that a lock file names for each Python, and nothing else.

    Args:
        lock: The text of the lock file, or of several.
        pythons: Versions such as `3.12`.
        folder: Wheels with a right checksum stay in it.
        seeds: Folders with wheels, tried before the index.
        announce: Called with a line for each wheel that goes and each download.

    Raises:
        CommandError: pip failed; the message is its own.
        ValueError: A line is not pinned with hashes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    hashes = set(re.findall(r"--hash=sha256:(\w+)", lock))
    for wheel in folder.glob("*.whl"):
        if sha256(wheel) not in hashes:
            announce(f"{folder.name}/{wheel.name}: no lock file has its checksum; removed")
            wheel.unlink()
    for wheel in (wheel for seed in seeds for wheel in seed.glob("*.whl")):
        if not (folder / wheel.name).exists() and sha256(wheel) in hashes:
            shutil.copyfile(wheel, folder / wheel.name)
    chosen = {name for python in pythons for name in _fetch_for(python, pins_for(lock, python), folder, announce)}
    for path in folder.iterdir():
        if path.is_file() and path.name not in chosen:
            path.unlink()


def build_wheels(sources: Sequence[Path], folder: Path) -> None:
    """Builds a wheel of each folder of sources, with build tools from the wheels that are there."""
    for source in sources:
        _pip("wheel", "--no-deps", "--no-index", f"--find-links={folder}", f"--wheel-dir={folder}", str(source))


def own_lock(wheels: Mapping[str, Path], version: str, distributions: Sequence[str]) -> str:
    """A lock file of our own distributions, whose wheels are given by distribution."""
    return "".join(f"{name}=={version} \\\n    --hash=sha256:{sha256(wheels[name])}\n" for name in distributions)


def _fetch_for(python: str, pins: Sequence[str], folder: Path, announce: Callable[[str], object]) -> set[str]:
    """Downloads what a folder lacks for one Python; returns the names of the wheels that pip then chooses from it."""
    older = re.compile(rf"-py3(?!{python.removeprefix('3.')}\b)\d+-none-any")
    # A wheel that is tagged for another Python may fit, but the index can have one for this Python.
    here = [wheel for wheel in folder.glob("*.whl") if not older.search(wheel.name)]
    try:
        return _choose(python, pins, here)
    except CommandError:
        announce(f"fetching wheels for Python {python}")
        _pip("download", f"--dest={folder}", *_options(python), lock="\n".join(pins), alone=False)
        return _choose(python, pins, sorted(folder.glob("*.whl")))


def _choose(python: str, pins: Sequence[str], wheels: Sequence[Path]) -> set[str]:
    lock = "\n".join(["--no-index", *(f"--find-links {wheel}" for wheel in wheels), *pins])
    report = _pip(
        "install", "--dry-run", "--ignore-installed", "--target=unused", "--report=-", *_options(python), lock=lock
    )
    urls = (urlsplit(item["download_info"]["url"]).path for item in json.loads(report)["install"])
    return {Path(unquote(url)).name for url in urls}


def _options(python: str) -> list[str]:
    return ["--no-deps", "--require-hashes", "--only-binary=:all:", f"--python-version={python}", *PLATFORMS]


def _pip(*arguments: str, lock: str = "", alone: bool = True) -> str:
    """The output of pip; `alone`: without the user's configuration, which may name other indexes."""
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if alone:
        environment = {key: value for key, value in environment.items() if not key.startswith("PIP_")}
        environment["PIP_CONFIG_FILE"] = os.devnull
    command = [sys.executable, "-m", "pip", "--quiet", "--no-input", *arguments]
    if lock:
        command.append("--requirement=/dev/stdin")
    result = subprocess.run(command, env=environment, input=lock, capture_output=True, text=True)
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise CommandError(f"pip {arguments[0]} failed:", *(lines or ["no message"]), exit_code=1)
    return result.stdout
