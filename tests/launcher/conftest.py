import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from tests.harness.launched import LAUNCHER, PYTHON, Launched
from tpujob_launcher.supervise.tpu import TpuFiles

UNTIL_RELEASED = "print(flush=True); sys.stdin.read()"
HOLDS = {
    "open": f"import sys; f = open(sys.argv[1]); {UNTIL_RELEASED}",
    "lockf": f"import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); {UNTIL_RELEASED}",
}


class Launch(Protocol):
    def __call__(self, *command: str, environ: Mapping[str, str] = ..., launcher: Sequence[str] = ...) -> Launched: ...


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts launchers, each with a folder of its own, and ends what a failed test leaves."""
    started: list[Launched] = []

    def start(*command: str, environ: Mapping[str, str] = {}, launcher: Sequence[str] = LAUNCHER) -> Launched:
        folder = tmp_path / f"launcher-{len(started)}"
        folder.mkdir()
        started.append(Launched(folder, command, environ, launcher))
        return started[-1]

    yield start
    for launched in started:
        launched.close()


@dataclass
class Machine:
    """A folder with the device files of a TPU machine, and a process that holds one of them."""

    files: TpuFiles
    holder: subprocess.Popen[bytes] | None = None

    def hold(self, path: Path, how: str = "open") -> int:
        path.touch()
        self.holder = subprocess.Popen([*PYTHON, HOLDS[how], str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.holder.stdout is not None
        assert self.holder.stdout.readline() == b"\n"
        return self.holder.pid

    def release(self) -> None:
        if self.holder is not None:
            self.holder.communicate()

    @property
    def launcher(self) -> tuple[str, ...]:
        """The launcher, looking at this machine."""
        program = (
            "import logging, os, sys\nfrom pathlib import Path\n"
            "from tpujob_launcher.main import launch\nfrom tpujob_launcher.supervise.tpu import TpuFiles\n"
            "logging.basicConfig(format='tpujob launch: %(message)s', level=logging.INFO)\n"
            f"tpu = TpuFiles(Path({str(self.files.devices)!r}), Path({str(self.files.lock_file)!r}))\n"
            "sys.exit(launch(sys.argv[1:], os.environ, tpu))"
        )
        return (sys.executable, "-c", program)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    (tmp_path / "dev" / "vfio").mkdir(parents=True)
    machine = Machine(TpuFiles(tmp_path / "dev", tmp_path / "libtpu_lockfile"))
    yield machine
    machine.release()


def make_devices(machine: Machine, *names: str) -> None:
    for name in names:
        (machine.files.devices / name).touch()
