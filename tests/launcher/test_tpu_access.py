"""Who may open the chips is logged at start, and named when the program fails."""

import os
import resource
from pathlib import Path

import pytest

from tests.harness.launched import JOB
from tests.launcher.conftest import Launch, Machine, make_devices
from tpujob_launcher.supervise.tpu import TpuFiles
from tpujob_launcher.supervise.tpu_access import TpuAccess, diagnostics, look

ADVICE = "the administrator may set jobs.runAsUser"


def close_device(machine: Machine, name: str) -> None:
    """A file that nobody may open, root (who runs some of these tests) included."""
    (machine.files.devices / name).symlink_to("nowhere")


def test_machine_without_a_tpu_is_not_looked_at(machine: Machine) -> None:
    make_devices(machine, "vfio/vfio")
    assert look(machine.files) is None
    assert diagnostics(None, b"Cannot allocate memory") == []


def test_devices_are_told_with_their_modes(machine: Machine) -> None:
    make_devices(machine, "vfio/vfio", "vfio/0")
    (machine.files.devices / "vfio/0").chmod(0o660)
    access = look(machine.files)
    assert access is not None
    owner = f"{os.getuid()}:{os.getgid()}"
    assert access.devices[0] == f"{machine.files.devices}/vfio/0 -rw-rw---- {owner}"
    assert access.closed == []
    assert f"TPU devices for user {os.getuid()}: " in str(access)


def test_limit_of_locked_memory_is_the_process_s_own(machine: Machine) -> None:
    make_devices(machine, "accel0")
    access = look(machine.files)
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    assert access is not None
    assert access.locked_bytes == (None if soft == resource.RLIM_INFINITY else soft)


@pytest.mark.parametrize(
    ("closed", "locked", "output", "said"),
    [
        ([], None, b"Cannot allocate memory", []),
        ([], 65536, b"out of luck", []),
        ([], 65536, b"mmap: Cannot allocate memory", ["a process may lock 64 KiB of memory only (ENOMEM): "]),
        ([], 1 << 40, b"Cannot allocate memory", []),
        (["/dev/vfio/0"], None, b"", ["user 10001 may not open /dev/vfio/0 (EACCES): "]),
    ],
    ids=["no limit", "another failure", "small limit", "large limit", "closed device"],
)
def test_failure_is_put_down_to_access(closed: list[str], locked: int | None, output: bytes, said: list[str]) -> None:
    access = TpuAccess(["/dev/vfio/0"], closed, 10001, locked)
    found = diagnostics(access, output)
    assert [words.partition(ADVICE)[0] for words in found] == said


def test_device_that_cannot_be_opened_is_in_the_message(launch: Launch, machine: Machine) -> None:
    close_device(machine, "accel0")
    launched = launch("sh", "-c", "exit 3", environ=JOB, launcher=machine.launcher)
    assert launched.wait() == 3
    path = machine.files.devices / "accel0"
    assert f"TPU devices for user {os.getuid()}: {path} (No such file or directory)" in launched.stderr
    assert f"user {os.getuid()} may not open {path} (EACCES): {ADVICE}" in launched.message[1]


def test_other_platforms_hear_nothing_of_it(launch: Launch, machine: Machine) -> None:
    close_device(machine, "accel0")
    launched = launch("sh", "-c", "exit 3", environ=JOB | {"JAX_PLATFORMS": "cpu"}, launcher=machine.launcher)
    assert launched.wait() == 3
    assert "TPU devices" not in launched.stderr
    assert not [line for line in launched.message if ADVICE in line]


def test_files_are_those_of_the_machine_by_default() -> None:
    assert TpuFiles().devices == Path("/dev")
