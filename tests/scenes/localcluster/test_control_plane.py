"""The control plane knows its users, and leaves nothing behind."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tools.localcluster import binaries
from tools.localcluster.api import Api, ApiError
from tools.localcluster.control_plane import ControlPlane, User
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.control_plane

logger = logging.getLogger(__name__)

ROOT = Path(__file__).parents[3]


def test_extra_user_is_known_by_its_token(tmp_path: Path, control_plane: ControlPlane) -> None:
    jane = User("jane", groups=("data-science",))
    with ControlPlane(tmp_path, users=[jane]) as plane:
        pids = plane.pids
        jane_api = Api(plane.url, token=jane.token, ca_file=plane.ca_file)
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        user = jane_api.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)["status"]["userInfo"]
        assert (user["username"], user["groups"]) == ("jane", ["data-science", "system:authenticated"])
        with pytest.raises(ApiError, match="403 Forbidden"):
            jane_api.items("/api/v1/pods")
        with pytest.raises(FileExistsError, match="another control plane runs"):
            ControlPlane(tmp_path).start()

    assert len(pids) == 3
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends the children of a killed process")
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=lambda end: end.name)
def test_no_process_outlives_the_command(tmp_path: Path, control_plane: ControlPlane, end: signal.Signals) -> None:
    with command_line("up", "--dir", tmp_path) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        line = command.stdout.readline()
        assert line == f"export KUBECONFIG={tmp_path}/kubeconfig\n", command.stderr.read()
        assert len(processes_of(tmp_path)) == 5  # the command itself and its four children

        command.send_signal(end)
        exit_code = command.wait(300)

    assert exit_code == (-signal.SIGKILL if end == signal.SIGKILL else 0)
    wait_for("its processes to end", lambda: processes_of(tmp_path) == [])


def test_second_call_of_tools_builds_nothing(control_plane: ControlPlane) -> None:
    binaries.build_all(logger.info, binaries.CHECKERS)
    with command_line("tools") as command:
        output, messages = command.communicate(timeout=300)

    assert messages == ""
    programs = [line.split()[0] for line in output.splitlines()]
    assert programs == [*binaries.CHECKERS, *binaries.CONTROL_PLANE]


@contextmanager
def command_line(*arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """`python -m tools.localcluster` as a process, killed at the end if it still runs."""
    command = [sys.executable, "-m", "tools.localcluster", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def processes_of(directory: Path) -> list[int]:
    """The processes whose command line names the directory, this one apart."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(directory).encode() in command and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found
