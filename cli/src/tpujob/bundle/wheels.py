"""Wheels of the lock files, and our own, in one folder: all that each requested Python needs, without an index."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tpujob.bundle.checksums import sha256
from tpujob.bundle.locks import Pin
from tpujob.bundle.target import Target
from tpujob.errors import CommandError
from tpujob_contract import ExitCode

CHUNK = 8
"""Pins that are fetched by one call of pip: the most that an interruption loses."""


class WheelFolder:
    """The folder `wheels` of a bundle."""

    def __init__(self, folder: Path, seeds: Sequence[Path], announce: Callable[[str], object]) -> None:
        """Creates the folder if needed; `seeds` are folders with wheels, tried before the index."""
        if importlib.util.find_spec("pip") is None:
            raise CommandError(
                "wheels are fetched by pip, which this Python environment lacks; install pip into it",
                exit_code=ExitCode.NOT_FOUND,
            )
        self.folder = folder
        self._seeds = seeds
        self._announce = announce
        self._sums: dict[tuple[str, int, int], str] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def drop_damaged(self, pins: Sequence[Pin]) -> None:
        """Removes each wheel that has the name of a pin, but none of its hashes."""
        for pin in pins:
            for wheel in _wheels_of(pin, self.folder):
                if self._sum(wheel) not in pin.hashes:
                    self._announce(f"wheels/{wheel.name}: wrong checksum; fetched again")
                    wheel.unlink()

    def fetch(self, pins: Sequence[Pin], target: Target) -> set[str]:
        """Fetches the wheels that are missing for a target; returns the names of all that fit it.

        Raises:
            CommandError: pip failed, with its last error line; or no wheel of a pin fits.
        """
        pins = [pin for pin in pins if target.needs(pin)]
        missing = [pin for pin in pins if not self._meant(pin, target, self.folder)]
        for pin in missing:
            for wheel in next(filter(None, (self._meant(pin, target, seed) for seed in self._seeds)), []):
                self._copy(wheel)
        missing = [pin for pin in missing if not self._meant(pin, target, self.folder)]
        if missing:
            self._announce(f"fetching {len(missing)} wheels for Python {target.python}")
        for start in range(0, len(missing), CHUNK):
            self._download(missing[start : start + CHUNK], target)
        found = {pin.name: self._fitting(pin, target, self.folder) for pin in pins}
        lacking = [name for name, wheels in found.items() if not wheels]
        if lacking:
            raise CommandError(f"wheels: none of {', '.join(lacking)} fits Python {target.python}", exit_code=1)
        return {wheel.name for wheels in found.values() for wheel in wheels}

    def find(self, pins: Sequence[Pin]) -> set[str] | None:
        """The names of the wheels of these pins; None: one is missing or damaged."""
        found = {wheel.name for pin in pins for wheel in _wheels_of(pin, self.folder) if self._sum(wheel) in pin.hashes}
        return found if len(found) == len(pins) else None

    def build_own(self, sources: Sequence[Path]) -> dict[str, Path]:
        """Builds our wheels, with build tools from the folder alone; returns their paths by distribution.

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

    def keep_only(self, names: set[str]) -> None:
        """Removes all other files: wheels of earlier lock files, and files of an interrupted run."""
        for path in self.folder.iterdir():
            if path.name not in names and path.is_file():
                path.unlink()

    def _fitting(self, pin: Pin, target: Target, folder: Path) -> list[Path]:
        """Wheels in a folder that are one of the pin's files and fit the target."""
        fitting = (wheel for wheel in _wheels_of(pin, folder) if target.fits(wheel.name))
        return [wheel for wheel in fitting if self._sum(wheel) in pin.hashes]

    def _meant(self, pin: Pin, target: Target, folder: Path) -> list[Path]:
        return [wheel for wheel in self._fitting(pin, target, folder) if target.is_meant_by(wheel.name)]

    def _copy(self, wheel: Path) -> None:
        """Copies a wheel into the folder, as a hard link if possible: wheels are never modified in place."""
        unfinished = self.folder / f".fetch-{wheel.name}"
        unfinished.unlink(missing_ok=True)
        try:
            unfinished.hardlink_to(wheel)
        except OSError:
            shutil.copyfile(wheel, unfinished)
        unfinished.replace(self.folder / wheel.name)

    def _download(self, pins: Sequence[Pin], target: Target) -> None:
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".fetch-") as folder:
            lock = Path(folder) / "lock.txt"
            # Without markers: pip would evaluate them for the Python that runs it.
            lock.write_text("".join(f"{pin.unconditional}\n" for pin in pins))
            download = ["download", "--no-deps", "--require-hashes", f"--requirement={lock}", f"--dest={folder}"]
            _check(_pip(*download, *target.pip_options, alone=False), f"fetching {pins[0].name} to {pins[-1].name}")
            self._take(Path(folder))

    def _sum(self, file: Path) -> str:
        """The checksum of a file, which is read again only when it has changed."""
        state = file.stat()
        key = (str(file), state.st_mtime_ns, state.st_size)
        if key not in self._sums:
            self._sums[key] = sha256(file)
        return self._sums[key]

    def _take(self, folder: Path, *, replace: bool = False) -> None:
        for wheel in folder.glob("*.whl"):
            if replace or not (self.folder / wheel.name).exists():
                wheel.replace(self.folder / wheel.name)


def _wheels_of(pin: Pin, folder: Path) -> Iterator[Path]:
    for wheel in sorted(folder.glob("*.whl")):
        if wheel.name.lower().startswith(pin.wheel_prefix):
            yield wheel


def _pip(*arguments: str, alone: bool) -> subprocess.CompletedProcess[str]:
    """Runs pip; `alone`: without the user's configuration, which may name other indexes."""
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
