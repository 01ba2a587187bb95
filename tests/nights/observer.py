"""Watches of our own on everything of one namespace: each version goes into the history, and the last ones are kept."""

import http.client
import json
import threading
import urllib.error
from collections.abc import Callable

from tests.nights.history import Facts, Seen
from tests.statuses import flat
from tools.localcluster.api import Api, ApiError, Object
from tpujob_contract import kubernetes_names as names

AGAIN_SECONDS = 0.2
LOST = (ApiError, urllib.error.URLError, http.client.HTTPException, OSError, ValueError)
"""What becomes of a request while the API server is troubled."""


class Observer:
    """Threads that watch; `stop` ends them."""

    def __init__(self, api: Api, namespace: str, note: Callable[[Seen], None], clock: Callable[[], float]) -> None:
        """Starts to watch; what is seen is given to `note`, with the time of `clock`."""
        self._api, self._note, self._clock = api, note, clock
        self._stopped = threading.Event()
        self._now: dict[str, dict[str, Object]] = {kind: {} for kind in PATHS}
        for kind, path in PATHS.items():
            where = path.format(namespace=namespace)
            threading.Thread(target=self._follow, args=(kind, where), daemon=True).start()

    def now(self, kind: str) -> list[Object]:
        """The objects of a kind as they were last seen."""
        return list(self._now[kind].values())

    def stop(self) -> None:
        """Sees nothing any more."""
        self._stopped.set()

    def _follow(self, kind: str, path: str) -> None:
        while not self._stopped.is_set():
            try:
                listed = self._api.get(path)
                self._replace(kind, listed["items"])
                since = listed["metadata"]["resourceVersion"]
                for line in self._api.lines(f"{path}?watch=true&resourceVersion={since}"):
                    event = json.loads(line)
                    if event["type"] == "ERROR" or self._stopped.is_set():
                        break
                    self._see(kind, event["object"], is_gone=event["type"] == "DELETED")
            except LOST:
                self._stopped.wait(AGAIN_SECONDS)

    def _replace(self, kind: str, listed: list[Object]) -> None:
        there = {each["metadata"]["uid"] for each in listed}
        for uid, old in list(self._now[kind].items()):
            if uid not in there:
                self._see(kind, old, is_gone=True)
        for each in listed:
            known = self._now[kind].get(each["metadata"]["uid"])
            if known is None or known["metadata"]["resourceVersion"] != each["metadata"]["resourceVersion"]:
                self._see(kind, each, is_gone=False)

    def _see(self, kind: str, found: Object, *, is_gone: bool) -> None:
        if self._stopped.is_set():
            return
        metadata, facts = found["metadata"], FACTS[kind](found)
        if is_gone:
            self._now[kind].pop(metadata["uid"], None)
        else:
            self._now[kind][metadata["uid"]] = found
        self._note(
            Seen(at=self._clock(), kind=kind, name=metadata["name"], uid=metadata["uid"], facts=facts, is_gone=is_gone)
        )


def _job(found: Object) -> Facts:
    metadata = found["metadata"]
    return {
        "generation": metadata["generation"],
        "spec": found["spec"],
        "status": flat(found.get("status") or {}),
        "deleting": "deletionTimestamp" in metadata,
    }


def _jobset(found: Object) -> Facts:
    template = found["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return {
        "owner": (found["metadata"].get("ownerReferences") or [{}])[0].get("uid", ""),
        "suspend": bool(found["spec"].get("suspend")),
        "restarts": (found.get("status") or {}).get("restarts", 0),
        "args": template["containers"][0].get("args", []),
    }


def _pod(found: Object) -> Facts:
    labels = found["metadata"]["labels"]
    conditions = found["status"].get("conditions") or []
    return {
        "job": labels.get(names.JOB_NAME, ""),
        "jobset": labels.get(names.JOBSET_UID, ""),
        "attempt": int(labels.get(names.RESTART_ATTEMPT, "0")),
        "phase": found["status"].get("phase", ""),
        "ready": any(each["type"] == "Ready" and each["status"] == "True" for each in conditions),
        "node": found["spec"].get("nodeName", ""),
    }


def _event(found: Object) -> Facts:
    return {"about": found["involvedObject"]["name"], "reason": found["reason"], "message": found["message"]}


def _owned(found: Object) -> Facts:
    return {"owner": (found["metadata"].get("ownerReferences") or [{}])[0].get("uid", "")}


PATHS = {
    "job": f"/apis/{names.API_VERSION}/namespaces/{{namespace}}/{names.PLURAL}",
    "jobset": f"/apis/{names.JOBSET_API_VERSION}/namespaces/{{namespace}}/jobsets",
    "pod": "/api/v1/namespaces/{namespace}/pods",
    "event": "/api/v1/namespaces/{namespace}/events",
    "policy": "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies",
    "service": "/api/v1/namespaces/{namespace}/services",
    "worker-job": "/apis/batch/v1/namespaces/{namespace}/jobs",
}
FACTS: dict[str, Callable[[Object], Facts]] = {
    "job": _job,
    "jobset": _jobset,
    "pod": _pod,
    "event": _event,
    "policy": _owned,
    "service": _owned,
    "worker-job": _owned,
}
