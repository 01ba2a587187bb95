"""Jobs of one namespace that no schema bounds: the operator serves the others, and says which it left aside."""

import json
from functools import partial
from pathlib import Path

import pytest

from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.waiting import wait_for
from tpujob_contract import kubernetes_names
from tpujob_resource.models.decoding import MAX_LEVELS

pytestmark = pytest.mark.control_plane

LARGE = 110
LARGE_BYTES = 1_200_000
"""Nearly the most that the API server stores."""
MEMORY_BYTES = 256 * 2**20
"""The operator's peak: half of the limit that the chart sets."""
DEEP = {"d33": '{"a":', "l1100": "[", "d1100": '{"a":', "d3000": '{"a":', "l3000": "["}
"""By name, with the number of levels: how each level opens."""

DATA = {"path": "gs://bucket/x/*.parquet", "tokenizer": "bytes"}


def create_deep(jobs: Jobs, *names: str) -> None:
    """Jobs with that many levels in a free-form field, as text: Python's own encoder would end at them."""
    for name in names:
        levels, opening = int(name[1:]), DEEP[name]
        arguments = opening * levels + "1" + ("}" if "{" in opening else "]") * levels
        kind = {"apiVersion": kubernetes_names.API_VERSION, "kind": kubernetes_names.KIND}
        spec = {"accelerator": "cpu:1x1", "suspend": True, "trainer": "T"}
        body = json.dumps({**kind, "metadata": {"name": name, "namespace": jobs.namespace}, "spec": spec})
        trainer = f'{{"model":{{"custom":"a:B","arguments":{{"a":{arguments}}}}},"data":{json.dumps(DATA)},"steps":10}}'
        jobs.plane.kubectl("create", "--validate=false", "-f", "-", stdin=body.replace('"T"', trainer))


def create_large(jobs: Jobs, number: int) -> None:
    for each in range(number):
        trainer = {"model": {"custom": "a:B", "arguments": {"a": "z" * LARGE_BYTES}}, "data": DATA, "steps": 10}
        jobs.create(f"large-{each}", accelerator="cpu:1x1", trainer=trainer, image=None, command=None)


def valid(jobs: Jobs, name: str) -> str:
    """The phase of a job, and the message of its condition Valid; empty while there is none."""
    path = '-o=jsonpath={.status.phase}: {.status.conditions[?(@.type=="Valid")].message}'
    return jobs.plane.kubectl("get", "tputrainingjobs", name, "-n", jobs.namespace, path).strip(": ")


def peak_bytes(operator: OperatorProcess) -> int:
    assert operator.process is not None
    status = Path(f"/proc/{operator.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def test_jobs_of_any_depth_and_size_stop_nobody(
    installed: ControlPlane, jobs: Jobs, namespace: str, operator_directory: Path
) -> None:
    hostile = jobs
    installed.create_namespace(f"{namespace[:50]}-other")
    honest = Jobs(installed, f"{namespace[:50]}-other")
    *before, after = DEEP
    create_deep(hostile, *before)
    create_large(hostile, LARGE)
    with OperatorProcess(installed, operator_directory) as operator:  # is ready, whatever it lists
        honest.create("listed")
        wait_for("a JobSet beside hostile jobs", lambda: honest.jobset("listed"), explain=operator.log)
        # What a watch shows is another way in than a list.
        create_deep(hostile, after)
        honest.create("watched")
        wait_for("a JobSet after a hostile job", lambda: honest.jobset("watched"), explain=operator.log)
        for name, opening in {**DEEP, "large-0": "", f"large-{LARGE - 1}": ""}.items():
            why = f"has more than {MAX_LEVELS} lists and mappings" if opening else "the spec is 1200"
            expected = f"spec.trainer: {why}"
            told = wait_for(f"the condition of {name}", partial(valid, hostile, name), explain=operator.log)
            assert told.startswith(f"Invalid: {expected}")
            assert f"Job left aside: {hostile.namespace}/{name}: {expected}" in operator.log()
        found = len(DEEP) + LARGE
        assert operator.metric("tpujob_operator_unreadable_objects_total", 'resource="tputrainingjobs"') >= found
        assert operator.get("/readyz")[0] == operator.get("/healthz")[0] == 200
        assert "starts again" not in operator.log()
        assert peak_bytes(operator) < MEMORY_BYTES
    honest.close()
