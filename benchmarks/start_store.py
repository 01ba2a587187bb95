"""Operations and bytes that JAX's key-value store on process 0 gets for one call of all processes.

    python -m benchmarks.start_store --sizes 64 512 2048 10000

Every process is the trainer's own `Coordination`, in turns in one thread: a call that would wait is given up, and made
again from its beginning when what it waits for may be there; what its process has done before is not counted again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from benchmarks.start_clients import host_of
from tpujob_trainer.distributed.kv_store import Coordination

LIMIT_SECONDS = 60.0
FACTS = {"ready_seconds": 1.25, "clock": 1.9e9, "memory_bytes": 2**38, "disk_bytes": 2**38}
"""The facts that a process reports about its host in the preflight."""
PROBLEM = {"problem": "the array 'embed' is not what was saved: its fingerprint is another", "is_out_of_reach": False}


class Blocked(BaseException):
    """A call would block here; not an Exception, so that no code handles it."""


class Store:
    """The key-value service; counts its operations and bytes."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.values: dict[str, str] = {}
        self.arrived: dict[str, set[int]] = {}
        self.operations = 0
        self.bytes = 0

    def count(self, size: int) -> None:
        """Counts an operation with keys and values of `size` bytes."""
        self.operations += 1
        self.bytes += size


class Client:
    """One process's client of the service (`kv_store.KeyValues`)."""

    def __init__(self, store: Store, process_id: int) -> None:
        self._store = store
        self._process_id = process_id
        self._done: set[tuple[str, str]] = set()

    def _count_once(self, what: str, key: str, size: int) -> None:
        if (what, key) not in self._done:
            self._done.add((what, key))
            self._store.count(len(key) + size)

    def key_value_set(self, key: str, value: str) -> None:
        """As JAX's."""
        self._store.values.setdefault(key, value)
        self._count_once("set", key, len(value))

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        """As JAX's."""
        if key not in self._store.values:
            raise Blocked
        self._count_once("get", key, len(self._store.values[key]))
        return self._store.values[key]

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        """As JAX's."""
        found = [(name, value) for name, value in self._store.values.items() if name.startswith(key)]
        self._count_once("list", key, sum(len(name) + len(value) for name, value in found))
        return found

    def wait_at_barrier(self, barrier_id: str, timeout_in_ms: int) -> None:
        """As JAX's."""
        arrived = self._store.arrived.setdefault(barrier_id, set())
        arrived.add(self._process_id)
        self._count_once("barrier", barrier_id, 0)
        if len(arrived) < self._store.processes:
            raise Blocked


def run(processes: int, call: Callable[[Coordination], Any]) -> Store:
    """Makes the call in every process; returns the store afterwards."""
    store = Store(processes)
    hosts = [host_of(number) for number in range(processes)]
    waiting = [
        Coordination(Client(store, number), process_id=number, hosts=hosts) for number in reversed(range(processes))
    ]
    while waiting:
        still = []
        for talk in waiting:
            try:
                call(talk)
            except Blocked:
                still.append(talk)
        # Processes start in reverse order, so that process 0 finds the messages of all others.
        waiting = still[::-1]
    return store


CALLS: dict[str, Callable[[Coordination], Any]] = {
    "barrier": lambda talk: talk.barrier("b", limit_seconds=LIMIT_SECONDS),
    "process 0 decides": lambda talk: talk.lead_decides("d", lambda: [3, 2], limit_seconds=LIMIT_SECONDS),
    "vote, none against": lambda talk: talk.objections("v", None, limit_seconds=LIMIT_SECONDS),
    "vote, all against": lambda talk: talk.objections("v", PROBLEM, limit_seconds=LIMIT_SECONDS),
    "process 0 decides on what all say": lambda talk: talk.lead_decides_on(
        "f", FACTS, lambda said: max(each["clock"] for each in said.values()), limit_seconds=LIMIT_SECONDS
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 512, 2048, 10_000])
    options = parser.parse_args()
    print("| operations, MB of keys and values | " + " | ".join(f"{size:,}" for size in options.sizes) + " |")
    print("|---" * (len(options.sizes) + 1) + "|")
    for name, call in CALLS.items():
        stores = [run(size, call) for size in options.sizes]
        print(f"| {name} | " + " | ".join(f"{s.operations:,}, {s.bytes / 1e6:,.2f}" for s in stores) + " |", flush=True)


if __name__ == "__main__":
    main()
