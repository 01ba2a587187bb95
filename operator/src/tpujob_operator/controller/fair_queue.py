"""Which key runs next when the namespaces of a cluster share a number of places."""

from collections import Counter
from collections.abc import Callable, Hashable

TURN_OF_THE_LEAST_SERVED = 4
"""How often the number of waiting keys does not matter: every so many places."""


class FairQueue[Key: Hashable]:
    """Keys that wait, and keys that run, by group.

    - Next is the group with the fewest keys, waiting and running, and of those the one whose key waits longest. So a
      group that seldom has work is served before those that always have much.
    - Every fourth place goes to the group with the fewest places, and of those to the one that was served least: many
      groups with few keys do not stop one with many.
    - Idle time is not saved up: a group that gets work after a while counts as the least served of the others.
    - A group has at most `share` of the places, so that slow runs of one group leave some to the others.
    - Within a group the key that waits longest is next. A key runs once at a time; one that is put while it runs waits,
      and does not delay others of its group.
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
        """The waiting keys of each group and since when; the group that was served last comes last."""
        self._running: set[Key] = set()
        self._taken = 0
        self._held: Counter[Hashable] = Counter()
        """Places that each group has."""
        self._used: dict[Hashable, float] = {}
        """Seconds of the runs of each group, since there was last no work at all."""
        self._least = 0.0
        """The fewest of them, of the groups that had work when a key was last taken."""

    def __len__(self) -> int:
        """The number of keys that wait."""
        return sum(map(len, self._waiting.values()))

    def __contains__(self, key: Key) -> bool:
        """Whether a key waits."""
        return key in self._waiting.get(self._group(key), ())

    def put(self, key: Key, since: float) -> None:
        """Lets a key wait; it keeps its place and time if it waits already."""
        group = self._group(key)
        if group not in self._waiting and group not in self._held:
            self._used[group] = max(self._used.get(group, 0.0), self._least)
        self._waiting.setdefault(group, {}).setdefault(key, since)

    def take(self) -> tuple[Key, float] | None:
        """The next key, which runs from now on, and since when it has waited; None: no waiting key may run."""
        if len(self._running) >= self._places:
            return None
        may_run = [
            group
            for group, waiting in self._waiting.items()
            if self._held[group] < self._share and not waiting.keys() <= self._running
        ]
        if not may_run:
            return None
        self._least = min(self._used[group] for group in self._waiting.keys() | self._held.keys())
        self._taken += 1
        if self._taken % TURN_OF_THE_LEAST_SERVED == 0:
            group = min(may_run, key=lambda group: (self._held[group], self._used[group]))
        else:
            group = min(may_run, key=self._fewest_keys)
        waiting = self._waiting.pop(group)
        key = next(key for key in waiting if key not in self._running)
        since = waiting.pop(key)
        if waiting:
            self._waiting[group] = waiting
        self._running.add(key)
        self._held[group] += 1
        return key, since

    def _fewest_keys(self, group: Hashable) -> tuple[int, float]:
        """The number of keys of a group, and since when its first one waits."""
        waiting = self._waiting[group]
        return self._held[group] + len(waiting), next(iter(waiting.values()))

    def done(self, key: Key, seconds: float) -> None:
        """Frees the place of a key that ran for some seconds."""
        group = self._group(key)
        self._running.remove(key)
        self._used[group] += seconds
        self._held[group] -= 1
        if not self._held[group]:
            del self._held[group]
        if not self._waiting and not self._running:
            self._used.clear()
            self._least = 0.0


def shared_by_namespaces(places: int) -> FairQueue[tuple[str, str]]:
    """A queue of objects, by namespace and name, in which a namespace has at most three quarters of the places."""
    return FairQueue(group=lambda key: key[0], places=places, share=places * 3 // 4)
