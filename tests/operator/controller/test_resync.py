"""One namespace that cannot be listed holds up no other one."""

from collections.abc import AsyncIterator
from typing import Any

from tpujob_operator.base.settings import Settings
from tpujob_operator.controller.job_gauges import JobGauges
from tpujob_operator.controller.resync import Resync
from tpujob_operator.controller.watch_staleness import WatchStaleness
from tpujob_operator.kube import errors
from tpujob_operator.kube.client import JOBS, Storage
from tpujob_operator.kube.requests import Resource
from tpujob_operator.observe.terminations import Key, TerminationCache


class TwoNamespaces(Storage):
    """One that is closed, before one with a job."""

    def __init__(self) -> None:
        self.closed = {"closed"}

    async def pages(
        self, resource: Resource, namespace: str | None, labels: str = "", fields: str = ""
    ) -> AsyncIterator[dict[str, Any]]:
        if namespace in self.closed:
            raise errors.Forbidden(f"get tputrainingjobs {namespace}/", 403, "no rights")
        metadata = {"namespace": namespace, "name": "llama", "resourceVersion": "1", "generation": 1}
        job = {"metadata": metadata, "spec": {"accelerator": "v5e-4"}, "status": {"phase": "Running"}}
        yield {"items": [job] if resource == JOBS else []}


async def test_other_namespaces_are_listed() -> None:
    storage, staleness, added = TwoNamespaces(), WatchStaleness(), list[Key]()
    namespaces = ("closed", "team")
    resync = Resync(
        storage,
        Settings(watch_namespaces=namespaces),
        add=lambda key, _: added.append(key),
        staleness=staleness,
        jobs=JobGauges(),
        evidence=TerminationCache(),
    )
    assert await resync.once(namespaces) == ("closed",)
    assert added == [("team", "llama")]
    assert staleness.seconds_since_list("team") is not None
    assert "403: no rights" in (staleness.list_error("closed") or "")
    storage.closed.clear()
    assert await resync.once(("closed",)) == ()
    assert staleness.list_error("closed") is None
