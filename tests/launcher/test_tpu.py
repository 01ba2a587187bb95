"""A TPU that another process holds is refused by name before anything is started."""

import os
import signal
import sys

import pytest

from tests.harness.launched import JOB
from tests.launcher.conftest import Launch, Machine, make_devices
from tpujob_launcher.supervise.tpu import find_holders, wants_whole_tpu

IMPATIENT = JOB | {"TPUJOB_GRACE_SECONDS": "1"}


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
