"""What the cache keeps, whichever way and in whatever order it is told."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.operator.building import job, pod
from tpujob_operator.observe.cache import Cache
from tpujob_operator.observe.terminations import TerminationCache

KEY = ("team", "llama")
JOBSET: dict[str, Any] = {
    "metadata": {"name": "llama", "namespace": "team", "uid": "u", "labels": {"tpujob.dev/job-name": "llama"}},
    "spec": {"replicatedJobs": []},
}


def at(manifest: dict[str, Any], version: int) -> dict[str, Any]:
    """The object in a version."""
    return {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": str(version)}}


KINDS: dict[str, tuple[Callable[[Cache], Any], dict[str, Any], Callable[[Cache], Any]]] = {
    "job": (lambda cache: cache.jobs, job(), lambda cache: cache.jobs.get(KEY)),
    "JobSet": (lambda cache: cache.jobsets, JOBSET, lambda cache: cache.jobsets.get(*KEY)),
    "pod": (lambda cache: cache.pods, pod(), lambda cache: cache.pods.of(KEY)),
}


@pytest.mark.parametrize(("sink", "manifest", "kept"), KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("by_list", [False, True], ids=["a watch says so", "a list has it no more"])
def test_list_that_is_older_than_a_deletion_brings_nothing_back(
    sink: Callable[[Cache], Any], manifest: dict[str, Any], kept: Callable[[Cache], Any], by_list: bool
) -> None:
    cache = Cache(TerminationCache(), lambda key: None)
    sink(cache).changed(at(manifest, 5), deleted=False)
    assert kept(cache)
    if by_list:
        sink(cache).listed(None, set(), 9)
    else:
        sink(cache).changed(at(manifest, 9), deleted=True)
    sink(cache).changed(at(manifest, 7), deleted=False)
    assert not kept(cache)
    sink(cache).changed(at(manifest, 11), deleted=False)
    assert kept(cache)


def test_whoever_begins_to_lead_looks_first_at_jobs_that_are_new_or_edited() -> None:
    cache = Cache(TerminationCache(), lambda key: None)
    for name, generation, observed in (("old", 3, 3), ("edited", 4, 3), ("older", 1, 1), ("new", 1, None)):
        status = {} if observed is None else {"status": {"observedGeneration": observed}}
        metadata = {"name": name, "namespace": "team", "generation": generation, "resourceVersion": "5"}
        cache.jobs.changed({"metadata": metadata, **status}, deleted=False)
    assert [name for _, name in cache.jobs.unseen_first()] == ["edited", "new", "old", "older"]


def test_version_in_which_a_number_of_restarts_was_first_seen_stays() -> None:
    cache = Cache(TerminationCache(), lambda key: None)

    def seen(version: int, restarts: int, uid: str = "u") -> int | None:
        metadata = {**JOBSET["metadata"], "uid": uid}
        jobset = {**JOBSET, "metadata": metadata, "status": {"restarts": restarts}}
        cache.jobsets.changed(at(jobset, version), deleted=False)
        kept = cache.jobsets.get(*KEY)
        assert kept is not None
        return kept.state.restarts_version

    assert [seen(5, 1), seen(6, 1), seen(8, 2), seen(9, 2), seen(11, 1, uid="another")] == [0, 0, 8, 8, 0]


MANY_JOBS = """
import orjson
from tpujob_operator.main import return_freed_memory
from tpujob_operator.observe.cache import JobCache

def resident():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmRSS"))

def text(number):
    metadata = {"name": f"job-{number}", "namespace": "team", "resourceVersion": "5"}
    arguments = {f"k{key}": key for key in range(3000)}
    return orjson.dumps({"metadata": metadata, "spec": {"trainer": {"model": {"arguments": arguments}}}})

return_freed_memory()
cache, before = JobCache(lambda key: None), resident()
for number in range(400):
    job = orjson.loads(text(number))
    cache.changed(job, deleted=False)
print((resident() - before) / (400 * len(text(0))))
"""


def test_jobs_take_the_memory_of_their_json_and_not_that_of_their_decoded_form() -> None:
    done = subprocess.run([sys.executable, "-c", MANY_JOBS], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 2  # more than 7 where freed memory stays in the heap
