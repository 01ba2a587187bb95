"""A one-machine cluster that stays up in the background, held by a process that is the parent of its processes."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tools.localcluster import binaries, machine, one_machine, product_images
from tools.localcluster.processes import ProcessError
from tools.localcluster.waiting import wait_for

ROOT = Path(__file__).parents[2]
DIRECTORY = ROOT / ".cache" / "cluster-with-node"
START_SECONDS = 600
"""Long enough for the first import of the images into the node, on a busy machine."""


def up(directory: Path, announce: Callable[[str], object]) -> None:
    """Brings up the cluster of the directory with the product of this checkout; returns when it is up.

    Raises:
        MachineUnfit: This machine cannot run a node.
        ImagesUnavailable: Packages of the base image cannot be downloaded.
        ProcessError: The cluster did not start; what it changed has been undone.
    """
    machine.prepare(announce)
    binaries.build_all(announce, binaries.NODE)
    # Before anything starts and without a time limit: the first time, and on a busy machine, this takes long.
    for key in product_images.IMAGES:
        product_images.build(key, announce)
    if one_machine.is_running(directory):
        if has_started(directory):
            announce("the cluster is up already; bringing its operator and trainer up to date")
            one_machine.redeploy(directory, announce)
            return
        announce("ending a cluster that did not finish its start")
    one_machine.end(directory)
    _ready_mark(directory).unlink(missing_ok=True)
    log = directory / "cluster.log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "tools.localcluster", "hold", f"--dir={directory}"]
        holder = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        with log.open() as lines:
            _follow(holder, directory, lines.readlines, announce)
    except BaseException:
        one_machine.end(directory)
        holder.wait()
        raise


def hold(directory: Path, announce: Callable[[str], object]) -> None:
    """Starts the cluster and holds it until this process is terminated; `one_machine.end` undoes the rest."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cluster = one_machine.OneMachine(directory, announce)
    try:
        cluster.start()
        _ready_mark(directory).touch()
        cluster.run()
    except KeyboardInterrupt:
        announce("told to end")
    finally:
        cluster.stop_processes()


def _follow(
    holder: subprocess.Popen[bytes],
    directory: Path,
    new_lines: Callable[[], list[str]],
    announce: Callable[[str], object],
) -> None:
    """Passes on the holder's output until the cluster is ready.

    Raises:
        ProcessError: The holder ended before that.
    """
    last = "it said nothing"

    def is_ready() -> bool:
        nonlocal last
        exit_code = holder.poll()
        for line in new_lines():
            last = line.strip() or last
            announce(line.rstrip())
        if exit_code is not None:
            raise ProcessError(f"the cluster did not start: {last} (logs are in {directory})")
        return has_started(directory)

    wait_for("the cluster to be up", is_ready, timeout_seconds=START_SECONDS)


def has_started(directory: Path) -> bool:
    """Whether the cluster of the directory has finished its start."""
    return _ready_mark(directory).exists()


def _ready_mark(directory: Path) -> Path:
    return directory / "ready"
