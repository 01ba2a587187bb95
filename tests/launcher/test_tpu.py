"""A TPU that another process holds is refused by name before anything is started."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.launched import JOB, PYTHON
from tests.launcher.conftest import Launch
from tpujob_launcher.tpu.holders import TpuFiles, find_holders, wants_whole_tpu

IMPATIENT = JOB | {"TPUJOB_GRACE_SECONDS": "1"}

UNTIL_RELEASED = "print(flush=True); sys.stdin.read()"
HOLDS = {
    "open": f"import sys; f = open(sys.argv[1]); {UNTIL_RELEASED}",
    "lockf": f"import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); {UNTIL_RELEASED}",
}


@dataclass
class Machine:
    """A folder with the device files of a TPU machine, and a process that holds one of them."""

    files: TpuFiles
    holder: subprocess.Popen | None = None

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
            "from tpujob_launcher.main import launch\nfrom tpujob_launcher.tpu.holders import TpuFiles\n"
            "logging.basicConfig(format='tpujob launch: %(message)s', level=logging.INFO)\n"
            f"tpu = TpuFiles(Path({str(self.files.devices)!r}), Path({str(self.files.lock_file)!r}))\n"
            "sys.exit(launch(sys.argv[1:], os.environ, tpu))"
        )
        return (sys.executable, "-c", program)


@pytest.fixture
def machine(tmp_path) -> Iterator[Machine]:
    (tmp_path / "dev" / "vfio").mkdir(parents=True)
    machine = Machine(TpuFiles(tmp_path / "dev", tmp_path / "libtpu_lockfile"))
    yield machine
    machine.release()


def make_devices(machine: Machine, *names: str) -> None:
    for name in names:
        (machine.files.devices / name).touch()


@pytest.mark.parametrize("device", ["accel0", "accel3", "vfio/0", "vfio/17"])
def test_open_device_names_its_holder(machine: Machine, device):
    make_devices(machine, "vfio/vfio", device)
    path = machine.files.devices / device
    pid = machine.hold(path)
    [holder] = find_holders(machine.files)
    assert (holder.pid, holder.path) == (pid, str(path))
    assert str(path) in holder.command
    machine.release()
    assert find_holders(machine.files) == []


def test_libtpus_lock_names_its_holder(machine: Machine):
    make_devices(machine, "accel0")
    pid = machine.hold(machine.files.lock_file, how="lockf")
    [holder] = find_holders(machine.files)
    assert (holder.pid, holder.path) == (pid, str(machine.files.lock_file))


def test_lock_file_that_nobody_holds_is_no_holder(machine: Machine):
    make_devices(machine, "accel0")
    machine.hold(machine.files.lock_file)  # open, and not locked
    assert find_holders(machine.files) == []


def test_machine_without_a_tpu_has_no_holders(machine: Machine):
    make_devices(machine, "vfio/vfio")
    machine.hold(machine.files.lock_file, how="lockf")
    assert find_holders(machine.files) == []


def test_held_tpu_is_refused_by_name(launch: Launch, machine: Machine):
    make_devices(machine, "accel0")
    pid = machine.hold(machine.files.devices / "accel0")
    launched = launch("echo", "started", environ=IMPATIENT, launcher=machine.launcher)
    assert launched.wait() == 69
    assert launched.stdout == ""
    first, reason = launched.message
    assert first == "exit code 69, another process holds the TPU"
    assert reason.startswith(f"the TPU is in use: process {pid} ({sys.executable} -I -S -c import sys; f = open(")
    assert reason.endswith("accel0, still after 1 s; end it, or use another host")


def test_tpu_that_becomes_free_is_taken(launch: Launch, machine: Machine):
    make_devices(machine, "vfio/0")
    machine.hold(machine.files.devices / "vfio/0")
    launched = launch("echo", "started", environ=JOB, launcher=machine.launcher)
    launched.wait_until_said("waiting up to 30 s")
    machine.release()
    assert launched.wait() == 0
    assert launched.stdout == "started\n"


def test_stop_while_waiting_for_the_tpu_ends_with_75(launch: Launch, machine: Machine):
    make_devices(machine, "vfio/0")
    pid = machine.hold(machine.files.devices / "vfio/0")
    launched = launch("echo", "started", environ=JOB, launcher=machine.launcher)
    launched.wait_until_said("waiting up to 30 s")
    launched.send(signal.SIGTERM)
    assert launched.wait() == 75
    assert launched.message[1].startswith(f"told to stop by SIGTERM before anything was started; process {pid} (")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, True),
        ({"JAX_PLATFORMS": ""}, True),
        ({"JAX_PLATFORMS": "tpu,cpu"}, True),
        ({"JAX_PLATFORMS": "cpu"}, False),
        ({"ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}, False),
        ({"ALLOW_MULTIPLE_LIBTPU_LOAD": "false"}, True),
        ({"TPU_VISIBLE_CHIPS": "0,1"}, False),
        ({"TPU_VISIBLE_DEVICES": "0"}, False),
    ],
    ids=str,
)
def test_who_wants_the_whole_tpu(environ, expected):
    assert wants_whole_tpu(environ) == expected


def test_own_process_is_no_holder(machine: Machine):
    make_devices(machine, "accel0")
    descriptor = os.open(machine.files.devices / "accel0", os.O_RDONLY)
    try:
        assert find_holders(machine.files) == []
    finally:
        os.close(descriptor)
