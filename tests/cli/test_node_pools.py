"""Node pools of a job, as `gcloud` lines that a shell reads word by word."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from tpujob.main import app

EXAMPLES = Path(__file__).parents[2] / "examples"
HOSTS = EXAMPLES / "03-many-hosts.yaml"
PLACE = ["--cluster=$CLUSTER", "--location=$ZONE"]


def lines(file: Path, *words: str, **spec: Any) -> list[list[str]]:
    settings = [f"--set=spec.{name}={json.dumps(value)}" for name, value in spec.items()]
    done = CliRunner().invoke(app, ["render", str(file), "--node-pools", "-o", "json", *settings, *words])
    assert done.exit_code == 0, done.stderr
    found: list[list[str]] = json.loads(done.stdout)
    return found


def flags(line: list[str]) -> set[str]:
    assert line[:4] == ["gcloud", "container", "node-pools", "create"]
    assert line[5:7] == PLACE
    return set(line[7:])


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {"--machine-type=ct5p-hightpu-4t", "--tpu-topology=4x4x4", "--num-nodes=16"}),
        ({"accelerator": "v5e-8"}, {"--machine-type=ct5lp-hightpu-8t", "--num-nodes=1"}),
        (
            {"capacity": {"reservation": {"name": "mine", "project": "the-owner", "block": "b", "subBlock": "s"}}},
            {
                "--reservation-affinity=specific",
                "--reservation=projects/the-owner/reservations/mine/reservationBlocks/b/reservationSubBlocks/s",
            },
        ),
        (
            {"capacity": {"flexStart": True}},
            {
                *("--num-nodes=0", "--max-nodes=16", "--enable-autoscaling", "--location-policy=ANY"),
                *("--flex-start", "--reservation-affinity=none", "--no-enable-autorepair"),
            },
        ),
        ({"capacity": {"queuedProvisioning": {}}, "queue": "q"}, {"--flex-start", "--enable-queued-provisioning"}),
        (
            {"nodeSelector": {"team": "a", "cloud.google.com/gke-boot-disk": "x"}},
            {"--node-labels=team=a", "--num-nodes=16"},
        ),
        ({"accelerator": "v6e-16", "placement": {"policyName": "near"}}, {"--placement-policy=near"}),
    ],
)
def test_pool_has_the_flags_of_its_job(spec: dict[str, Any], expected: set[str]) -> None:
    (line,) = lines(HOSTS, **spec)
    assert flags(line) >= expected


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_pools_of_an_example_have_a_machine_for_each_pod(file: Path) -> None:
    if YAML().load(file)["spec"]["accelerator"].startswith("cpu"):
        return
    done = CliRunner().invoke(app, ["render", str(file), "-o", "json"])
    replicated = json.loads(done.stdout)["spec"]["replicatedJobs"]
    pods = sum(each.get("replicas", 1) * each["template"]["spec"]["parallelism"] for each in replicated)
    created = [flag for line in lines(file) for flag in line if flag.startswith("--num-nodes=")]
    assert sum(int(flag.partition("=")[2]) for flag in created) == pods


def test_pool_of_parts_has_the_machines_of_the_whole() -> None:
    spec = {"accelerator": "v6e:4x4", "slices": 4, "queue": "q", "placement": {"poolTopology": "4x8"}}
    found = [flags(line) for line in lines(HOSTS, **spec)]
    assert found == [{"--machine-type=ct6e-standard-4t", "--tpu-topology=4x8", "--num-nodes=8", "--async"}] * 2


def test_pools_of_two_jobs_of_one_shape_have_other_names() -> None:
    longest = "a" * 40
    named = {
        job: {line[4] for line in lines(HOSTS, f"--set=metadata.name={job}", slices=2)}
        for job in ("one", "two", f"{longest}-one", f"{longest}-two")
    }
    assert named["one"] == {"one-v5p-4x4x4-0", "one-v5p-4x4x4-1"}
    every = [name for names in named.values() for name in names]
    assert len({*every}) == 8
    assert all(re.fullmatch(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])", name) for name in every)


def test_ironwood_slice_of_several_hosts_gets_its_workload_policy_first() -> None:
    policy, pool = lines(HOSTS, accelerator="tpu7x-64")
    assert policy[1:6] == ["compute", "resource-policies", "create", "workload-policy", "tpu7x-2x4x4"]
    assert set(policy[6:]) == {"--region=${ZONE%-*}", "--type=HIGH_THROUGHPUT", "--accelerator-topology=2x4x4"}
    assert flags(pool) == {"--machine-type=tpu7x-standard-4t", "--placement-policy=tpu7x-2x4x4", "--num-nodes=8"}


def test_shell_reads_the_words_and_what_was_created_is_deleted() -> None:
    for words, verb in (((), "create"), (("--delete",), "delete")):
        text = (
            CliRunner()
            .invoke(app, ["render", str(HOSTS), "--node-pools", "--set=spec.slices=2", *words], catch_exceptions=False)
            .stdout
        )
        script = "CLUSTER=c ZONE=us-west4-a\ngcloud() { printf '%s\\n' \"$*\"; }\n" + text
        done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True)
        assert done.stderr == ""
        assert [line.split()[:6] for line in done.stdout.splitlines()] == [
            ["container", "node-pools", verb, f"many-hosts-v5p-4x4x4-{number}", "--cluster=c", "--location=us-west4-a"]
            for number in range(2)
        ]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"accelerator": "cpu:2x4"}, "spec.accelerator: cpu:2x4 runs on any machine of a cluster"),
        ({"capacity": {"computeClass": "tpus"}}, "spec.capacity.computeClass: GKE creates the node pools of tpus"),
        (
            {"accelerator": "tpu7x:4x4x8", "queue": "q", "placement": {"dynamicSlice": True}},
            "spec.placement.dynamicSlice: the node pools of 4x4x4 cubes belong to the whole cluster",
        ),
    ],
)
def test_job_without_pools_of_its_own_is_refused(spec: dict[str, Any], problem: str) -> None:
    settings = [f"--set=spec.{name}={json.dumps(value)}" for name, value in spec.items()]
    done = CliRunner().invoke(app, ["render", str(HOSTS), "--node-pools", *settings])
    assert done.exit_code == 78
    assert problem in done.stderr


def test_deletion_alone_is_refused() -> None:
    done = CliRunner().invoke(app, ["render", str(HOSTS), "--delete"])
    assert done.exit_code == 78
    assert "--delete: is for --node-pools" in done.stderr
