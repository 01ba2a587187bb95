"""The control plane is real, knows who is who, and leaves nothing behind."""

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
from tools.localcluster.audit import Call, calls
from tools.localcluster.control_plane import CommandError, ControlPlane, User
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.control_plane

logger = logging.getLogger(__name__)

ROOT = Path(__file__).parents[3]


def test_api_server_answers_as_the_pinned_version(control_plane: ControlPlane) -> None:
    assert control_plane.api.get("/version")["gitVersion"] == "v1.37.2"
    assert "Server Version: v1.37.2" in control_plane.kubectl("version")


def test_helm_finds_the_cluster(control_plane: ControlPlane, namespace: str) -> None:
    assert control_plane.run_tool("helm", "list", "--namespace", namespace, "--output=json").strip() == "[]"


def test_service_account_has_only_the_rights_of_its_role(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.kubectl("create", "serviceaccount", "reader", "-n", namespace)
    control_plane.kubectl("create", "role", "reader", "--verb=list", "--resource=pods", "-n", namespace)
    grant = f"--serviceaccount={namespace}:reader"
    control_plane.kubectl("create", "rolebinding", "reader", "--role=reader", grant, "-n", namespace)
    kubeconfig = control_plane.kubeconfig_of_service_account(namespace, "reader")

    assert control_plane.kubectl("get", "pods", "--output=name", kubeconfig=kubeconfig) == ""
    with pytest.raises(CommandError, match='cannot list resource "secrets"'):
        control_plane.kubectl("get", "secrets", kubeconfig=kubeconfig)


def test_audit_log_names_who_did_what(control_plane: ControlPlane, namespace: str) -> None:
    controller = "system:serviceaccount:kube-system:service-account-controller"

    made = calls(control_plane.audit_log, controller)

    assert Call("create", "", "serviceaccounts", namespace) in made
    assert not [call for call in made if call.resource == "jobs"]


def test_children_of_a_deleted_owner_go(api: Api, namespace: str) -> None:
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    owner = api.create(maps, {"metadata": {"name": "owner"}})["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    api.create(maps, {"metadata": {"name": "child", "ownerReferences": [reference]}})

    api.delete(f"{maps}/owner")

    wait_for("the child to be deleted", lambda: "child" not in [item["metadata"]["name"] for item in api.items(maps)])


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
