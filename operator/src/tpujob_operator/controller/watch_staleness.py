"""Whether the watches still work: what a list shows must come through the watch, too, within a limited time.

Unlike with a canary object, nothing has to be written, and a cluster in which nothing happens raises no alarm.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tpujob_operator.base import metrics

ALLOWED_SECONDS = 120.0
"""How long the watch may lag behind a list before it counts as dead."""

type Ref = tuple[str, str, str]
"""Resource, namespace, name."""


class WatchStaleness:
    """Compares lists with what the watches have shown."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._watched: dict[Ref, int] = {}
        self._missed: dict[Ref, float] = {}
        self._listed_at: dict[str | None, float] = {}
        self._list_errors: dict[str | None, str] = {}

    def note_watched(self, resource: str, manifest: Mapping[str, Any]) -> None:
        """Records that this version, or the deletion of it, came through a watch.

        The newest version counts, because a list of ours may report an older one later. A deleted object is kept until
        a list lacks it: a list that was started before the deletion still has it.
        """
        ref = _ref(resource, manifest)
        # Any event after the list proves that the watch works, even if it skipped the listed version.
        if self._missed.pop(ref, None) is not None:
            metrics.WATCH_MISSED.set(len(self._missed))
        self._watched[ref] = max(_version(manifest), self._watched.get(ref, 0))

    def note_listed(self, resource: str, manifests: Iterable[Mapping[str, Any]], namespace: str | None = None) -> None:
        """Records a complete list, made just now, of a resource in a namespace or in all of them."""
        now = self._clock()
        self._listed_at[namespace] = now
        self._list_errors.pop(namespace, None)
        present = {_ref(resource, manifest): _version(manifest) for manifest in manifests}
        for ref, version in present.items():
            # The watch may be ahead: a list of many pages is as of its first.
            if self._watched.get(ref, 0) < version:
                self._missed.setdefault(ref, now)
        for gone in [
            ref for ref in (*self._watched, *self._missed) if _is_in(ref, resource, namespace) and ref not in present
        ]:
            # Its deletion event may still come; if it never comes, no harm is done, because lists show it, too.
            self._watched.pop(gone, None)
            self._missed.pop(gone, None)
        metrics.WATCH_MISSED.set(len(self._missed))
        metrics.LAST_RESYNC.set_to_current_time()

    def seconds_behind(self) -> float:
        """How long the watches have been failing to show something; 0 when they show everything."""
        return self._clock() - min(self._missed.values()) if self._missed else 0.0

    def note_list_failed(self, namespace: str | None, error: str) -> None:
        """Records why a namespace, or all of them, could not be listed just now."""
        self._list_errors[namespace] = error

    def seconds_since_list(self, namespace: str | None = None) -> float | None:
        """Age of the last complete list of a namespace, or of all of them; None before the first."""
        listed_at = self._listed_at.get(namespace)
        return None if listed_at is None else self._clock() - listed_at

    def list_error(self, namespace: str | None = None) -> str | None:
        """Why the last list failed; None: it did not."""
        return self._list_errors.get(namespace)


def _is_in(ref: Ref, resource: str, namespace: str | None) -> bool:
    return ref[0] == resource and namespace in (None, ref[1])


def _ref(resource: str, manifest: Mapping[str, Any]) -> Ref:
    metadata = manifest["metadata"]
    return resource, metadata["namespace"], metadata["name"]


def _version(manifest: Mapping[str, Any]) -> int:
    return int(manifest["metadata"]["resourceVersion"])
