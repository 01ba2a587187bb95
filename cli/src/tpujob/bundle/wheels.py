"""Wheels of the lock files, and our own, in one folder; whole for each Python that was asked for, without an index."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tpujob.bundle.checksums import sha256
from tpujob.bundle.locks import Pin
from tpujob.errors import CommandError
from tpujob_contract import ExitCode

NEWEST_GLIBC = 36
"""Minor version of the glibc that wheels may need: Debian 12, on which the images are based; older ones fit as well."""
ARCHITECTURE = "x86_64"
CHUNK = 8
"""Pins that are fetched by one call of pip; what an interruption loses."""


class WheelFolder:
    """The folder `wheels` of a bundle."""

    def __init__(self, folder: Path, seeds: Sequence[Path], announce: Callable[[str], object]) -> None:
        """Seeds are folders with wheels, tried before the index."""
        if importlib.util.find_spec("pip") is None:
            raise CommandError(
                "wheels are fetched by pip, which this Python environment lacks; install pip into it",
                exit_code=ExitCode.NOT_FOUND,
            )
        self.folder = folder
        self._seeds = seeds
        self._announce = announce
        folder.mkdir(parents=True, exist_ok=True)

    def drop_damaged(self, pins: Sequence[Pin]) -> None:
        """Removes, by name, each wheel of a pin that has no hash of it."""
        for pin in pins:
            for wheel in self._wheels_of(pin):
                if sha256(wheel) not in pin.hashes:
                    self._announce(f"wheels/{wheel.name}: wrong checksum; fetched again")
                    wheel.unlink()

    def fetch(self, pins: Sequence[Pin], python: str) -> set[str]:
        """Fetches what is missing for a version of Python; returns the wheels that pip takes on it.

        Raises:
            CommandError: pip could not; with its last line.
        """
        selection = self._selection(pins, python)
        if selection is not None:
            return selection
        self._announce(f"fetching the wheels for Python {python}")
        for start in range(0, len(pins), CHUNK):
            chunk = pins[start : start + CHUNK]
            with tempfile.TemporaryDirectory(dir=self.folder, prefix=".fetch-") as folder:
                lock = Path(folder) / "lock.txt"
                lock.write_text("".join(f"{pin.text}\n" for pin in chunk))
                download = ["download", "--no-deps", "--require-hashes", *_target(python), f"--requirement={lock}"]
                download.append(f"--dest={folder}")
                here = [f"--find-links={place}" for place in (self.folder, *self._seeds)]
                # Only where all can be there: the question takes a second.
                if not self._may_have(chunk) or _pip(*download, "--no-index", *here, alone=True).returncode != 0:
                    _check(_pip(*download, alone=False), f"fetching {chunk[0].name} to {chunk[-1].name}")
                self._take(Path(folder))
        selection = self._selection(pins, python)
        if selection is None:
            raise CommandError(f"wheels: some are still missing for Python {python}; run this again", exit_code=1)
        return selection

    def find(self, pins: Sequence[Pin]) -> set[str] | None:
        """The wheels that have a hash of each of these pins; None if one is missing or damaged."""
        found = {wheel.name for pin in pins for wheel in self._wheels_of(pin) if sha256(wheel) in pin.hashes}
        return found if len(found) == len(pins) else None

    def build_own(self, sources: Sequence[Path]) -> dict[str, Path]:
        """Builds our distributions with what the folder holds; the wheels by distribution.

        Raises:
            CommandError: One does not build.
        """
        wheels = {}
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".build-") as folder:
            for source in sources:
                command = ["wheel", "--no-deps", "--no-index", f"--find-links={self.folder}", f"--wheel-dir={folder}"]
                _check(_pip(*command, str(source), alone=True), f"building a wheel of {source}")
            for wheel in Path(folder).glob("*.whl"):
                wheels[wheel.name.partition("-")[0].replace("_", "-")] = self.folder / wheel.name
            self._take(Path(folder), replace=True)
        return wheels

    def _selection(self, pins: Sequence[Pin], python: str) -> set[str] | None:
        """The wheels that pip takes, without an index and by their hashes; None if one is missing."""
        with tempfile.TemporaryDirectory(prefix="tpujob-bundle-") as folder:
            lock, report = Path(folder) / "lock.txt", Path(folder) / "report.json"
            lock.write_text("".join(f"{pin.text}\n" for pin in pins))
            result = _pip(
                *("install", "--dry-run", "--ignore-installed", f"--target={folder}", f"--report={report}"),
                *("--no-deps", "--no-index", f"--find-links={self.folder}", "--require-hashes", *_target(python)),
                f"--requirement={lock}",
                alone=True,
            )
            if result.returncode != 0:
                return None
            installed = json.loads(report.read_text())["install"]
        return {entry["download_info"]["url"].rpartition("/")[2] for entry in installed}

    def keep_only(self, names: set[str]) -> None:
        """Removes wheels of earlier lock files, and what an interrupted run left."""
        for path in self.folder.iterdir():
            if path.name not in names and path.is_file():
                path.unlink()

    def _wheels_of(self, pin: Pin) -> list[Path]:
        return [wheel for wheel in self.folder.glob("*.whl") if wheel.name.lower().startswith(pin.wheel_prefix)]

    def _may_have(self, pins: Sequence[Pin]) -> bool:
        names = [wheel.name.lower() for place in (self.folder, *self._seeds) for wheel in place.glob("*.whl")]
        return all(any(name.startswith(pin.wheel_prefix) for name in names) for pin in pins)

    def _take(self, folder: Path, *, replace: bool = False) -> None:
        for wheel in folder.glob("*.whl"):
            if replace or not (self.folder / wheel.name).exists():
                wheel.replace(self.folder / wheel.name)


def _target(python: str) -> list[str]:
    """Pip's options for wheels of a platform that need not be this one."""
    platforms = [f"manylinux_2_{minor}_{ARCHITECTURE}" for minor in range(5, NEWEST_GLIBC + 1)]
    platforms += [f"manylinux{year}_{ARCHITECTURE}" for year in ("2014", "2010", "1")]
    return ["--only-binary=:all:", f"--python-version={python}", *(f"--platform={name}" for name in platforms)]


def _pip(*arguments: str, alone: bool) -> subprocess.CompletedProcess[str]:
    """Runs pip; alone, with nothing of the person's configuration, which may name other places to look in."""
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if alone:
        environment = {key: value for key, value in environment.items() if not key.startswith("PIP_")}
        environment["PIP_CONFIG_FILE"] = os.devnull
    command = [sys.executable, "-m", "pip", "--quiet", "--no-input", *arguments]
    return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def _check(result: subprocess.CompletedProcess[str], what: str) -> None:
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if line.startswith("ERROR")] or result.stderr.splitlines()
        raise CommandError(f"{what}: pip failed: {(lines or ['no message'])[-1]}", exit_code=1)
