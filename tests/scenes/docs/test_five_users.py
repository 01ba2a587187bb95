"""Five people in a clean environment type what the pages say, and get what they came for.

Nobody has the checkout: the packages are the wheels of `make wheels`. The cluster is a real API server with JobSet, and
the operator has the rights that the chart gives; pods are played. `make first-hours` prints how long each took.
"""

import json
import logging
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.docs.newcomer import ROOT, Newcomer, block, commands, section
from tests.harness.installed import installed, wheels
from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess
from tools.localcluster import binaries
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.jobset import JobSetController, jobset_custom_resources
from tools.localcluster.toolchain import ToolsUnavailable

pytestmark = [pytest.mark.processes, pytest.mark.control_plane, pytest.mark.timeout(1500)]

TEXTS = {f"text-{number}.md": f"# Text {number}\n\n" + f"line {number} of a text\n" * 400 for number in range(8)}
NAMESPACE = "research"
ENDLESS = 1_000_000
logger = logging.getLogger(__name__)


@dataclass
class Account:
    """What somebody typed, and when they had what they came for."""

    who: str
    typed: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def close(self, wanted: str, at_most: int) -> None:
        """Prints a row, and judges the number of commands."""
        seconds = time.monotonic() - self.began
        sys.stdout.write(f"\n| {self.who} | {wanted} | {len(self.typed)} | {seconds:.0f} s |\n")
        assert len(self.typed) <= at_most, self.typed


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a clean environment."""
    folder = tmp_path_factory.mktemp("five-users")
    return Path(installed(folder, wheels(folder / "dist"), "tpujob[run]")["PATH"].split(":")[0])


@pytest.fixture
def newcomer(scripts: Path, tmp_path: Path) -> Newcomer:
    """Somebody with a laptop."""
    return Newcomer(tmp_path, scripts=scripts)


def test_own_text_has_a_loss_after_four_commands_and_is_resumed_and_changed(newcomer: Newcomer) -> None:
    (newcomer.folder / "my-texts").mkdir()
    for name, text in TEXTS.items():
        (newcomer.folder / "my-texts" / name).write_text(text)
    from_folder, new, check, run = commands("README.md", "Your own text")
    inspect, listed = commands("README.md", "Your own text", 1)
    assert "my-data" in newcomer.types(inspect, code=77)
    account = Account("has a folder of text", [from_folder, new, check, run])
    assert "in 1 parquet file\n" in newcomer.types(from_folder)
    assert f"`{run}` starts it" in newcomer.types(new)
    # However fast the machine is, it is not over before it is stopped.
    newcomer.edits("job.yaml", "steps: 200", f"steps: {ENDLESS}")
    assert f"run: {ENDLESS:,} steps of 16 x 128 tokens" in newcomer.types(check)
    with newcomer.start(run) as process:
        wait_for_line(process, r"step .* loss \d")
        account.close("the first loss", 4)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        said = process.stdout.read()
    assert process.returncode == 75
    stopped = re.search(r"stopped: saved at step (\d+); `(.*)` goes on from there", said)
    assert stopped, said

    assert "first global batch: 16 rows" in newcomer.types(inspect)
    last = int(stopped[1]) + 2
    newcomer.edits("job.yaml", f"steps: {ENDLESS}", f"steps: {last}")
    resumed = newcomer.types(stopped[2])
    assert f"resumed from step {stopped[1]}" in resumed
    assert f"finished at step {last}" in resumed
    assert resumed.splitlines()[-1].startswith("report       .tpujob/default/my-model/report.html")
    assert "Loss by step" in (newcomer.folder / ".tpujob/default/my-model/report.html").read_text()
    assert re.search(rf"^ +{last} ", newcomer.types(listed), re.MULTILINE)

    newcomer.edits("job.yaml", "{preset: tiny}", "{preset: tiny, layers: 2}")
    assert "metadata.name" in newcomer.types(run, code=78)
    newcomer.edits("job.yaml", "name: my-model", "name: another")
    newcomer.edits("job.yaml", f"steps: {last}", "steps: 2")
    newcomer.edits("job.yaml", "cpu:2x2", "cpu:1x1")
    assert "finished at step 2" in newcomer.types(run)


def test_a_script_has_its_peers_after_one_command(newcomer: Newcomer) -> None:
    page, title = "docs/your-script.md", "On this machine"
    (newcomer.folder / "train.py").write_text(block(page, title, "python"))
    (run,) = commands(page, title)
    account = Account("has a script", [run])
    with newcomer.start(run) as process:
        wait_for_line(process, "process 0 of 2 sees 4 devices")
        account.close("“process 0 of 2”", 2)
        assert process.stdout is not None
        process.stdout.read()
    assert process.returncode == 0


def test_a_notebook_has_a_dataframe_after_one_call(newcomer: Newcomer) -> None:
    (newcomer.folder / "text.txt").write_text("tick tock " * 400)
    job = (ROOT / "examples" / "quickstart.yaml").read_text()
    (newcomer.folder / "job.yaml").write_text(re.sub(r"path: [^,]+", "path: text.txt", job).replace("2x4", "1x1"))
    program = block("docs/python.md", "On this machine", "python")
    (newcomer.folder / "cell.py").write_text(program.replace('"spec.trainer.steps": 100', '"spec.trainer.steps": 5'))
    account = Account("has a notebook", ["tpujob.run(…)"])
    assert re.search(r"^Succeeded \d", newcomer.types("python3 cell.py"), re.MULTILINE)
    account.close("numbers as a dataframe", 2)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster with JobSet and nothing of tpujob."""
    try:
        binaries.build_all(logger.info, (*binaries.CONTROL_PLANE, "helm"))
    except ToolsUnavailable as reason:
        pytest.skip(f"no control plane: {reason}")
    directory = tmp_path_factory.mktemp("cluster")
    with ControlPlane(directory, custom_resources=[jobset_custom_resources()]) as plane, JobSetController(plane):
        plane.create_namespace(NAMESPACE)
        yield plane


def at_the_cluster(cluster: ControlPlane, folder: Path, scripts: Path) -> Newcomer:
    """Somebody whose kubeconfig names a namespace, with the chart beside them."""
    config = json.loads(cluster.kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = NAMESPACE
    (folder / "kubeconfig").write_text(json.dumps(config))
    (folder / "charts").symlink_to(ROOT / "charts")
    return Newcomer(folder, folder / "kubeconfig", binaries.path("kubectl").parent, scripts)


@pytest.fixture(scope="module")
def operator(cluster: ControlPlane, scripts: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """The chart is installed as the page says, and its operator runs as the account that the chart made."""
    folder = tmp_path_factory.mktemp("engineer")
    engineer = at_the_cluster(cluster, folder, scripts)
    text = section("docs/install.md", "1\\. From a registry").replace("\\\n", "")
    (install,) = re.findall(r"^ {4}(helm install .+)$", text, re.MULTILINE)
    account = Account("runs a cluster", [install])
    assert "STATUS: deployed" in engineer.types(install)
    with OperatorProcess(cluster, folder / "operator", account="tpujob-tpujob-operator"):
        yield account


def test_an_engineer_has_a_job_in_the_cluster_after_three_commands(
    operator: Account, cluster: ControlPlane, scripts: Path, tmp_path: Path
) -> None:
    engineer = at_the_cluster(cluster, tmp_path, scripts)
    page = ("docs/gke.md", "A job, its status, its logs")
    cluster.kubectl("create", "serviceaccount", "trainer", "-n", NAMESPACE)
    (engineer.folder / "first.yaml").write_text(block(*page, "yaml"))
    for command in commands(*page)[:2]:
        operator.typed.append(command)
        said = engineer.types(command)
    assert re.search(r"^first +v5e-16 +\w+ +0/4", said, re.MULTILINE), said
    operator.close("chart installed, first job queued", 3)


@pytest.mark.usefixtures("operator")
def test_the_cause_of_a_failed_job_is_one_command_away(cluster: ControlPlane, scripts: Path, tmp_path: Path) -> None:
    person = at_the_cluster(cluster, tmp_path, scripts)
    jobs = Jobs(cluster, NAMESPACE)
    jobs.create("llama")
    cause = "host-1: spec.trainer.data.path: gs://corpus/*.parquet: the bucket does not exist"
    for pod in jobs.run("llama"):
        jobs.end_pod(pod, exit_code=77, message=cause)
    jobs.wait_phase("llama", "Failed")
    text = (ROOT / "docs" / "operations.md").read_text()
    first = shlex.split(re.findall(r"^ {4}(tpujob .+?)(?: {2}|$)", text, re.MULTILINE)[0])
    account = Account("is called at night", [shlex.join("llama" if word == "NAME" else word for word in first)])
    assert cause in " ".join(person.types(account.typed[0]).split())
    account.close("the cause of a failed job", 2)


def wait_for_line(process: subprocess.Popen[str], pattern: str) -> None:
    """Reads what is printed up to a line."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if re.search(pattern, line):
            return
    pytest.fail(said)
