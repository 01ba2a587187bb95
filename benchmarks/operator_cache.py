"""What thousands of jobs cost the operator in memory and processor time, without an API server.

    python -m benchmarks.operator_cache

The cache gets jobs, JobSets and pods as an API server serves them, decoded from JSON like the lines of a watch; then
reconciles read jobs from it and decide. Everything except the network is the operator's own code. Processor time is
measured, so other work on the machine has little effect.
"""

import asyncio
import json
import time
from typing import Any

from benchmarks.common import parser, resident_mib
from tpujob_contract import kubernetes_names
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.chain import decide
from tpujob_operator.kube.client import Storage
from tpujob_operator.observe.cache import Cache
from tpujob_operator.observe.gather import Gatherer
from tpujob_operator.observe.report_poller import ReportPoller
from tpujob_operator.observe.terminations import Key, TerminationCache
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.jobset.expand import expand_pods
from tpujob_resource.rules.load import load_job

NAMESPACE = "bench"
PASSES = 2000
SETTINGS = Settings(network_policies=False, watch_namespaces=(NAMESPACE,))
CREATED = "2030-01-01T00:00:00Z"


def manifest(index: int, *, hosts: int, suspend: bool) -> dict[str, Any]:
    """A job as the API server serves it; the uid of its JobSet is `jobset-INDEX`."""
    name = f"job-{index:05}"
    status = {
        "phase": "Suspended" if suspend else "Running",
        "message": "Suspended by spec.suspend; set it to false to go on.",
        "observedGeneration": 1,
        "jobSet": name,
        "internal": {"jobSetUid": f"jobset-{index}"},
        "incarnation": 1,
        "hosts": hosts,
        "hostsReady": 0 if suspend else hosts,
        "startTime": CREATED,
        "progress": {"stepTime": CREATED},
    }
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"job-{index}",
        "generation": 1,
        "resourceVersion": str(index + 1),
        "creationTimestamp": CREATED,
    }
    spec = {"accelerator": f"cpu:{hosts}x1", "image": "example.com/image", "command": ["train"], "suspend": suspend}
    kind = {"apiVersion": kubernetes_names.API_VERSION, "kind": kubernetes_names.KIND}
    return {**kind, "metadata": metadata, "spec": spec, "status": status}


def jobset_of(job: dict[str, Any], index: int) -> dict[str, Any]:
    """The JobSet of a job."""
    made = build_jobset(load_job({key: value for key, value in job.items() if key != "status"}), SETTINGS)
    made["metadata"] |= {"uid": f"jobset-{index}", "resourceVersion": "1", "namespace": NAMESPACE}
    made["spec"]["suspend"] = job["spec"]["suspend"]
    return made


def pods_of(jobset: dict[str, Any]) -> list[dict[str, Any]]:
    """The pods of a JobSet, running and ready, each about as large as a kubelet leaves it."""
    found = []
    job = f"{jobset['metadata']['name']}-{kubernetes_names.REPLICATED_JOB}-0"
    for number, pod in enumerate(expand_pods(jobset)):
        made: dict[str, Any] = {"spec": dict(pod.spec)}
        made["metadata"] = {
            "name": f"{pod.name}-abcde",
            "labels": {**pod.labels, kubernetes_names.JOBSET_UID: jobset["metadata"]["uid"]},
            "annotations": dict(pod.annotations),
            "uid": f"{jobset['metadata']['uid']}-{number}",
            "resourceVersion": str(number + 1),
            "namespace": NAMESPACE,
            "creationTimestamp": CREATED,
            "ownerReferences": [{"kind": "Job", "name": job, "controller": True}],
        }
        made["spec"]["nodeName"] = f"node-{jobset['metadata']['uid']}-{number}"
        made["status"] = {
            "phase": "Running",
            "podIP": f"10.{number}.0.1",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": CREATED}],
            "containerStatuses": [
                {"name": kubernetes_names.CONTAINER, "state": {"running": {"startedAt": CREATED}}, "ready": True}
            ],
        }
        found.append(made)
    return found


class Fed:
    """A cache, and the number, size and cost of the events that it got."""

    def __init__(self) -> None:
        self.evidence = TerminationCache()
        self.cache = Cache(self.evidence, lambda _: None)
        self.seconds = 0.0
        self.events = 0
        self.bytes = 0

    def feed(self, sink: Any, found: dict[str, Any]) -> None:
        """Decodes an event and passes it to a sink of the cache; adds up the processor time."""
        line = json.dumps(found).encode()
        self.events, self.bytes = self.events + 1, self.bytes + len(line)
        began = time.process_time()
        sink.changed(json.loads(line), deleted=False)
        self.seconds += time.process_time() - began


async def pass_seconds(fed: Fed, keys: list[Key]) -> float:
    """The processor seconds of one reconcile of an unchanged job."""
    reports = ReportPoller(None, news=lambda _: None, add=lambda *_: None)  # type: ignore[arg-type]  # no report is fetched here
    gatherer = Gatherer(Storage(None), fed.cache, fed.evidence, reports, SETTINGS)  # type: ignore[arg-type]  # no read
    gatherer.is_current = lambda _: True
    began = time.process_time()
    for number in range(PASSES):
        seen = await gatherer.gather(keys[number % len(keys)])
        assert seen is not None
        decision = decide(seen[0], SETTINGS)
        assert decision.step is None
        assert decision.status.phase is seen[0].status.phase, decision.status.message
    return (time.process_time() - began) / PASSES


def measure(jobs: int, *, hosts: int, suspend: bool) -> None:
    """Prints the memory and processor time for a number of jobs."""
    before, fed = resident_mib(), Fed()
    keys: list[Key] = []
    for index in range(jobs):
        job = manifest(index, hosts=hosts, suspend=suspend)
        jobset = jobset_of(job, index)
        keys.append((NAMESPACE, job["metadata"]["name"]))
        fed.feed(fed.cache.jobs, job)
        fed.feed(fed.cache.jobsets, jobset)
        for pod in [] if suspend else pods_of(jobset):
            fed.feed(fed.cache.pods, pod)
    print(f"{jobs} {'suspended' if suspend else 'running'} jobs of {hosts} hosts:")
    print(f"  {resident_mib() - before:.0f} MiB for {fed.events} objects, of {fed.bytes / 2**20:.0f} MiB as JSON")
    print(f"  {fed.seconds / fed.events * 1e6:.0f} us of CPU an event, {fed.seconds:.1f} s for all")
    print(f"  {asyncio.run(pass_seconds(fed, keys)) * 1000:.2f} ms of CPU a pass without a change")


def main() -> None:
    """The command."""
    arguments = parser(__doc__)
    arguments.add_argument("--at-rest", type=int, default=5000, help="how many suspended jobs")
    arguments.add_argument("--running", type=int, default=1000, help="how many running jobs of 64 hosts")
    options = arguments.parse_args()
    print(f"with the operator's modules: {resident_mib():.0f} MiB")
    measure(options.at_rest, hosts=2, suspend=True)
    measure(options.running, hosts=64, suspend=False)


if __name__ == "__main__":
    main()
