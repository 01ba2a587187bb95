"""Which key runs next when the namespaces of a cluster share a number of places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable


class FairQueue[Key: Hashable]:
    """Keys that wait, and keys that run, by group.

    - Groups that wait take turns, and within one the key that waits longest is next. Another group delays a key by at
      most one of its own keys for each key of this group that is before it, however many wait there.
    - A group has at most `share` of the places, so that slow runs of one group leave some to the others.
    - A key runs once at a time. One that is put while it runs waits, and does not delay others of its group.
    """

    def __init__(self, *, group: Callable[[Key], Hashable], places: int, share: int) -> None:
        """Starts empty.

        Args:
            group: The group of a key.
            places: Most keys that run at once.
            share: Most keys of one group that run at once.
        """
        self._group = group
        self._places = places
        self._share = share
        self._waiting: dict[Hashable, dict[Key, float]] = {}
        """The waiting keys of each group and since when, first those that are next."""
        self._running: set[Key] = set()
        self._held: Counter[Hashable] = Counter()
        """Places that each group has."""

    def __len__(self) -> int:
        """The number of keys that wait."""
        return sum(map(len, self._waiting.values()))

    def __contains__(self, key: Key) -> bool:
        """Whether a key waits."""
        return key in self._waiting.get(self._group(key), ())

    def put(self, key: Key, since: float) -> None:
        """Lets a key wait; it keeps its place and time if it waits already."""
        self._waiting.setdefault(self._group(key), {}).setdefault(key, since)

    def take(self) -> tuple[Key, float] | None:
        """The next key, which runs from now on, and since when it has waited; None: no waiting key may run."""
        if len(self._running) >= self._places:
            return None
        for group, waiting in self._waiting.items():
            # Passes at most as many keys and groups as there are places.
            key = next((key for key in waiting if key not in self._running), None)
            if key is not None and self._held[group] < self._share:
                return key, self._start(group, key)
        return None

    def _start(self, group: Hashable, key: Key) -> float:
        waiting = self._waiting.pop(group)
        since = waiting.pop(key)
        if waiting:
            self._waiting[group] = waiting  # behind the others
        self._running.add(key)
        self._held[group] += 1
        return since

    def done(self, key: Key) -> None:
        """Frees the place of a key that ran."""
        group = self._group(key)
        self._running.remove(key)
        self._held[group] -= 1
        if not self._held[group]:
            del self._held[group]
