"""An API server in memory: objects with resource versions and uids, preconditions, watches with a history."""

import asyncio
import json
import marshal
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Mapping
from random import Random
from typing import Any

from tpujob_operator.kube import errors
from tpujob_operator.kube.requests import Requests, Resource, describe

type Object = dict[str, Any]
type Name = tuple[str, str]
"""Plural and name; there is one namespace."""

NAMESPACE = "team"
TIMEOUT_SECONDS = 15.0


class Server:
    """The store, and the history that watches read."""

    def __init__(self) -> None:
        self.version = 1
        self.objects: dict[Name, Object] = {}
        self.history: list[tuple[int, str, str, Object]] = []
        """Resource version, plural, event type, object."""
        self.forgotten = 0
        """Watches from before this version get 410."""
        self.changed: list[Callable[[str, Object | None, Object | None], None]] = []
        """Told of plural, object before, object after each write."""
        self.news = asyncio.Event()
        self._uids = 0

    def get(self, plural: str, name: str) -> Object | None:
        found = self.objects.get((plural, name))
        return _copy(found) if found is not None else None

    def stored(self, plural: str, name: str) -> Object | None:
        """For reading alone; what changes an object replaces it."""
        return self.objects.get((plural, name))

    def all(self, plural: str) -> list[Object]:
        """For reading alone, as `stored`."""
        return [self.objects[name] for name in sorted(self.objects) if name[0] == plural]

    def create(self, plural: str, manifest: Object) -> Object:
        name = manifest["metadata"]["name"]
        if (plural, name) in self.objects:
            raise errors.AlreadyExists(f"post {plural} {name}", 409, "it exists")
        self._uids += 1
        made: Object = json.loads(json.dumps(manifest))
        made["metadata"] |= {"namespace": NAMESPACE, "uid": f"{plural}-{self._uids}", "generation": 1}
        return self._store(plural, None, made)

    def update(self, plural: str, name: str, change: Callable[[Object], None]) -> Object | None:
        """The object after a change, made by somebody who has read it just now; None when there is none."""
        before = self.objects.get((plural, name))
        if before is None:
            return None
        after = _copy(before)
        change(after)
        return after if after == before else self._store(plural, before, after)

    def delete(self, plural: str, name: str) -> None:
        before = self.objects.pop((plural, name), None)
        if before is None:
            return
        self._publish(plural, "DELETED", before, None)
        # The garbage collector, which is quick here.
        for (kind, child), found in list(self.objects.items()):
            owners = found["metadata"].get("ownerReferences") or []
            if any(owner.get("uid") == before["metadata"]["uid"] for owner in owners):
                self.delete(kind, child)

    def _store(self, plural: str, before: Object | None, after: Object) -> Object:
        if before is not None and before.get("spec") != after.get("spec"):
            after["metadata"]["generation"] += 1
        self.objects[plural, after["metadata"]["name"]] = after
        self._publish(plural, "ADDED" if before is None else "MODIFIED", before, after)
        return _copy(after)

    def _publish(self, plural: str, kind: str, before: Object | None, after: Object | None) -> None:
        self.version += 1
        shown = _copy(after if after is not None else before)
        assert shown is not None
        shown["metadata"]["resourceVersion"] = str(self.version)
        if after is not None:
            after["metadata"]["resourceVersion"] = str(self.version)
        self.history.append((self.version, plural, kind, shown))
        for tell in self.changed:
            tell(plural, before, after)
        self.news.set()
        self.news = asyncio.Event()


class Faults:
    """How badly the way to the API server behaves now."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.refusals = 0.0
        """Share of requests that get 503 and do nothing."""
        self.lost_answers = 0.0
        """Share of requests that are carried out and never answered."""
        self.late = 0.0
        """Share of writes that are carried out long after they were sent."""
        self.watch_lag = 0.05
        """Longest delay of a watch's event, in seconds."""
        self.watch_errors = 0.0
        """Share of a watch's events before which the stream breaks."""


class SimulatedRequests(Requests):
    """What one operator process sends."""

    def __init__(self, server: Server, faults: Faults) -> None:
        super().__init__(None)
        self._server = server
        self._faults = faults

    async def close(self) -> None:
        """There is nothing to close."""

    async def send(
        self,
        method: str,
        resource: Resource,
        namespace: str | None,
        name: str | None = None,
        subresource: str | None = None,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "",
    ) -> Object:
        """Goes its way even if the sender is gone before the answer."""
        what = describe(method, resource, namespace, name, subresource)
        random, faults = self._faults.random, self._faults
        answer: asyncio.Future[Object] = asyncio.get_running_loop().create_future()
        # As the text that it would be on the wire.
        text = json.dumps(body)

        def carry_out() -> None:
            try:
                found = self._carry_out(what, method, resource[1], name, json.loads(text), query or {})
            except errors.ApiError as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done() and random.random() >= faults.lost_answers:
                    answer.set_result(found)

        if random.random() < faults.refusals:
            raise errors.Unavailable(what, 503, "refused by the simulation")
        is_late = method != "GET" and random.random() < faults.late
        delay = random.uniform(5, 60) if is_late else random.uniform(0.001, 0.02)
        asyncio.get_running_loop().call_later(delay, carry_out)
        try:
            found = await asyncio.wait_for(answer, TIMEOUT_SECONDS)
            await asyncio.sleep(random.uniform(0, 0.01))
        except TimeoutError:
            raise errors.Unavailable(what, None, "no answer in the simulation") from None
        return found

    def _carry_out(
        self, what: str, method: str, plural: str, name: str | None, body: Any, query: Mapping[str, str]
    ) -> Object:
        server = self._server
        if method == "POST":
            return server.create(plural, body)
        if method == "GET" and name is None:
            labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
            items = [found for found in server.all(plural) if _matches(found, labels) and _has_fields(found, fields)]
            return {"items": _copy(items), "metadata": {"resourceVersion": str(server.version)}}
        before = server.get(plural, str(name))
        if before is None:
            raise errors.NotFound(what, 404, "there is none")
        if method == "GET":
            return before
        conditions = (body.get("preconditions") if method == "DELETE" else body.get("metadata")) or {}
        for field in ("uid", "resourceVersion"):
            if field in conditions and conditions[field] != before["metadata"][field]:
                raise errors.Conflict(what, 409, f"{field} is {before['metadata'][field]}")
        if method == "DELETE":
            # Foreground: it goes when its pods are gone.
            server.update(plural, str(name), lambda found: found["metadata"].setdefault("deletionTimestamp", "now"))
            return before
        patch = {key: value for key, value in body.items() if key != "metadata"}
        after = server.update(plural, str(name), lambda found: _merge(found, patch))
        assert after is not None
        return after

    async def watch(
        self, resource: Resource, namespace: str | None, *, selector: str, version: str
    ) -> AsyncIterator[tuple[str, Object]]:
        """With a delay before each event, in order; sometimes it breaks."""
        server, faults, at = self._server, self._faults, int(version)
        what = describe("watch", resource, namespace)
        if at < server.forgotten:
            raise errors.Gone(what, 410, "too old")
        yield "OPENED", {}
        ends = asyncio.get_running_loop().time() + faults.random.uniform(60, 240)
        while asyncio.get_running_loop().time() < ends:
            news = server.news
            begin = bisect_right(server.history, at, key=lambda one: one[0])
            for number, plural, kind, manifest in server.history[begin:]:
                await asyncio.sleep(faults.random.uniform(0, faults.watch_lag))
                if faults.random.random() < faults.watch_errors:
                    raise errors.Unavailable(what, None, "broken in the simulation")
                at = number
                if plural == resource[1] and _matches(manifest, selector):
                    yield kind, _copy(manifest)
            try:
                await asyncio.wait_for(news.wait(), max(0.1, ends - asyncio.get_running_loop().time()))
            except TimeoutError:
                return


def _copy(of: Any) -> Any:
    return marshal.loads(marshal.dumps(of))  # noqa: S302 - our own; a quarter of the time of JSON


def _matches(manifest: Object, selector: str) -> bool:
    key, _, value = selector.partition("=")
    found = (manifest["metadata"].get("labels") or {}).get(key)
    return not selector or (found is not None and value in ("", found))


def _has_fields(manifest: Object, selector: str) -> bool:
    for each in filter(None, selector.split(",")):
        path, _, wanted = each.partition("=")
        found: Any = manifest
        for key in path.removesuffix("!").split("."):
            found = found.get(key) if isinstance(found, dict) else None
        if (found == wanted) == path.endswith("!"):
            return False
    return True


def _merge(into: Object, patch: Mapping[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
