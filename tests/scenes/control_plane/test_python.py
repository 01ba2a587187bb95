"""`import tpujob` against a real API server and operator, whose pods are played."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kubernetes.config import kube_config

import tpujob
from tests.harness.jobs import Jobs
from tests.operator.manifests import container_manifest
from tools.localcluster.waiting import wait_for

pytestmark = [pytest.mark.control_plane, pytest.mark.usefixtures("operator")]


@pytest.fixture
def namespace(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of the jobs, in the cluster of the kubeconfig."""
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(jobs.plane.kubeconfig))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return jobs.namespace


def job(name: str, **spec: Any) -> dict[str, Any]:
    found = container_manifest(**{"accelerator": "cpu:2x1", "resources": {"requests": {"cpu": "1"}}, **spec})
    return {**found, "metadata": {"name": name}}


@contextmanager
def refused(*words: str) -> Iterator[None]:
    with pytest.raises(tpujob.CommandError) as caught:
        yield
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_job_is_submitted_waited_for_stopped_and_resumed(namespace: str, jobs: Jobs) -> None:
    made = tpujob.submit(job("llama"), namespace=namespace, set={"spec.restarts.crashes": 7}, dry_run=True)
    assert (made.resource["spec"]["restarts"]["crashes"], tpujob.list_jobs(namespace=namespace)) == (7, [])
    made = tpujob.submit(job("llama"), namespace=namespace)
    assert (made.name, made.namespace, made.phase, made.status) == ("llama", namespace, None, {})
    with refused("'llama' is there already"):
        tpujob.submit(job("llama"), namespace=namespace)
    jobs.run("llama")
    jobs.wait_phase("llama", "Running")
    assert tpujob.get("llama", namespace=namespace).phase == "Running"
    assert [each.name for each in tpujob.list_jobs(namespace=namespace)] == ["llama"]
    lines: list[str] = []
    with pytest.raises(TimeoutError, match="llama: has not ended within 0 s; it is Running, and goes on"):
        tpujob.wait(made, timeout_seconds=0, say=lines.append)
    assert lines == ["Running"]

    assert tpujob.stop("llama", namespace=namespace).resource["spec"]["suspend"] is True
    assert tpujob.resume(made).resource["spec"]["suspend"] is False
    with refused("llama: is not stopped"):
        tpujob.resume(made)
    with refused("has not ended", "nothing to retry"):
        tpujob.retry(made)
    with refused("spec.checkpointDir: llama has none"):
        _ = made.checkpoints


def test_the_end_of_a_job_is_returned_or_raised_with_its_logs(namespace: str, jobs: Jobs) -> None:
    good, bad = (tpujob.submit(job(name, restarts={"crashes": 0}), namespace=namespace) for name in ("good", "bad"))
    with refused("has no pods now", "tpujob logs bad --attempts"):
        tpujob.logs(bad)
    for name in ("good", "bad"):
        pods = jobs.run(name)
        jobs.wait_phase(name, "Running")
        if name == "bad":
            jobs.end_pod(pods[0], exit_code=78, message="data: is not there")
    jobs.finish("good")
    assert tpujob.wait(good, say=lambda line: None).phase == "Succeeded"
    lines: list[str] = []
    with pytest.raises(tpujob.JobFailed, match=r"bad: Failed: .*data: is not there") as failure:
        tpujob.wait("bad", namespace=namespace, say=lines.append)
    assert failure.value.job.phase == "Failed"
    assert lines[-1].startswith("Failed: ")
    assert tpujob.retry(bad).resource["spec"]["retry"] == 1


def test_the_program_of_the_page_prints_the_logs_of_a_job_that_failed(
    namespace: str, jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "python.md").read_text()
    (program,) = (each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "tpujob.submit(" in each)
    made = job("page", restarts={"crashes": 0}, accelerator="cpu:2x2")
    made["metadata"]["namespace"] = namespace
    (tmp_path / "job.yaml").write_text(json.dumps(made))
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(exec, program.replace("v5e-16", "cpu:2x1"), {})
        wait_for("the job", lambda: [each for each in jobs.api.items(jobs.path) if each["metadata"]["name"] == "page"])
        jobs.end_pod(jobs.run("page")[0], exit_code=78, message="data: is not there")
        done.result()
    said = capsys.readouterr().out.splitlines()
    assert any(line.startswith("Failed: ") for line in said), said
    # The pods are played: their kubelet, which would have the logs, is not there.
    assert "(no log: " in said[-1]


def test_what_is_wrong_is_refused_before_a_request(namespace: str) -> None:
    with pytest.warns(UserWarning, match=r"^spec\.resources: is missing"):
        tpujob.submit(job("llama", resources=None), namespace=namespace, dry_run=True)
    with refused("job: spec.slices", "0"):
        tpujob.submit(job("llama", slices=0), namespace=namespace)
    with refused("job: ", "set", "is not JSON serializable"):
        tpujob.submit(job("llama", command={"a set"}), namespace=namespace)
    with refused("set: ", "not JSON"):
        tpujob.submit(job("llama"), set={"spec.slices": float("nan")}, namespace=namespace)
    with refused("no TpuTrainingJob 'nobody'"):
        tpujob.get("nobody", namespace=namespace)
