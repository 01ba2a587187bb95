"""The seam: what the operator writes for a pod, the trainer reads as the right process, for every accelerator."""

import json

import pytest

from tests.operator.manifests import TRAINER, manifest
from tpujob_contract import DistributedProcess, IndependentWorker, kubernetes_names, read_environment
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.jobset.expand import Pod, expand_pods
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.rules.load import load_job
from tpujob_resource.topology.parse import parse_accelerator
from tpujob_resource.topology.tables import GENERATIONS

SIZES = [f"{g.name}-{size}" for g in GENERATIONS.values() for size in g.sizes]
SHAPES = ["v4:4x16x4", "v5litepod-32", "v5p:4x8x16", "v6e:16x16", "tpu7x:4x4x4", "cpu:1x1", "cpu:2x4", "cpu:7x3"]
LARGE_HOSTS = 256
"""Up to here every pod is read; of larger slices the first, the last and every 97th between."""


def _processes(pods: list[Pod]) -> list[DistributedProcess]:
    processes = [read_environment(pod.environ) for pod in pods]
    assert all(isinstance(process, DistributedProcess) for process in processes)
    return [process for process in processes if isinstance(process, DistributedProcess)]


def _slices(name: str) -> list[int]:
    accelerator = parse_accelerator(name)
    if accelerator.is_tpu and (accelerator.generation == "v3" or not accelerator.is_multi_host):
        return [1]  # GKE joins only multi-host slices, and none of v3
    return [1, 2, 3, 16] if accelerator.hosts_per_slice <= 16 else [1, 2] if accelerator.hosts_per_slice <= 64 else [1]


@pytest.mark.parametrize("name", [*SIZES, *SHAPES])
def test_each_pod_reads_its_own_process(name: str) -> None:
    for slices in _slices(name):
        job = load_job(manifest("j", accelerator=name, slices=slices))
        pods = expand_pods(build_jobset(job, JobSettings()))
        count = slices * job.accelerator.hosts_per_slice
        assert len(pods) == count
        chosen = range(count) if count <= LARGE_HOSTS else sorted({*range(0, count, 97), count - 1})
        processes = _processes([pods[i] for i in chosen])
        assert [process.process_id for process in processes] == list(chosen)
        assert {process.num_processes for process in processes} == {count}
        assert {process.coordinator for process in processes} == {f"{pods[0].dns_name}:8476"}
        assert {process.chips_per_host for process in processes} == {job.accelerator.chips_per_host}
        assert processes[0].process_id == 0


@pytest.mark.parametrize("slices", [2, 3, 16])
def test_megascale_agrees_with_the_slices(slices: int) -> None:
    pods = expand_pods(build_jobset(load_job(manifest(accelerator="v5e-16", slices=slices)), JobSettings()))
    for pod in pods:
        assert pod.environ["MEGASCALE_COORDINATOR_ADDRESS"] == pods[0].dns_name
        assert pod.environ["MEGASCALE_NUM_SLICES"] == str(slices)
        assert pod.environ["MEGASCALE_SLICE_ID"] == str(pod.slice_index) == pod.environ["TPUJOB_SLICE"]


def test_labels_number_the_slices_from_0() -> None:
    pods = expand_pods(build_jobset(load_job(manifest(accelerator="v5e-16", slices=3)), JobSettings()))
    assert [pod.labels[kubernetes_names.JOB_GLOBAL_INDEX] for pod in pods] == [str(pod.slice_index) for pod in pods]
    assert {pod.labels[kubernetes_names.GLOBAL_REPLICAS] for pod in pods} == {"3"}


def test_cpu_slices_show_megascale_too() -> None:
    pods = expand_pods(build_jobset(load_job(manifest(accelerator="cpu:2x4", slices=2)), JobSettings()))
    assert [pod.environ["MEGASCALE_SLICE_ID"] for pod in pods] == ["0", "0", "1", "1"]
    assert {pod.environ["JAX_NUM_CPU_DEVICES"] for pod in pods} == {"4"}
    assert {pod.environ["JAX_PLATFORMS"] for pod in pods} == {"cpu"}


@pytest.mark.parametrize("name", ["v5e-1", "v6e-8", "v4-8", "tpu7x-8", "cpu:1x4"])
def test_each_worker_is_alone(name: str) -> None:
    pods = expand_pods(build_jobset(load_job(manifest(accelerator=name, workers=20)), JobSettings()))
    workers = [read_environment(pod.environ) for pod in pods]
    assert all(isinstance(worker, IndependentWorker) for worker in workers)
    assert [(w.worker, w.workers) for w in workers if isinstance(w, IndependentWorker)] == [(i, 20) for i in range(20)]
    assert {pod.environ["TPU_WORKER_HOSTNAMES"] for pod in pods} == {"localhost"}
    assert {pod.environ["TPU_WORKER_ID"] for pod in pods} == {"0"}


@pytest.mark.parametrize("prompt", ["plain", "$(HOME) costs 5$", "$$", "ünïcode \n\t\"quoted\" 'single'"])
def test_the_trainer_block_arrives_unchanged(prompt: str) -> None:
    trainer = {**TRAINER, "sample": {"prompt": prompt}, "tokens": 20e9}
    del trainer["steps"]
    pod = expand_pods(build_jobset(load_job(manifest(trainer=trainer)), JobSettings()))[0]
    process = read_environment(pod.environ)
    assert process is not None
    assert process.config is not None
    assert json.loads(process.config) == trainer


def test_limits_and_places_arrive_unchanged() -> None:
    given = manifest(checkpointDir="gs://bucket/x", startupSeconds=77, gracePeriodSeconds=33)
    pod = expand_pods(build_jobset(load_job(given), JobSettings(), incarnation=4), restart_attempt=2)[1]
    process = read_environment(pod.environ)
    assert process is not None
    assert (process.checkpoint_dir, process.startup_seconds, process.grace_seconds) == ("gs://bucket/x", 77, 33)
    assert (process.incarnation, process.attempt, process.name, process.namespace) == (4, 2, "llama", "default")
    assert process.report_port == 9432
