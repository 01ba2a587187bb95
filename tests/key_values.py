"""JAX's key-value store, as several processes see it, in one; the real one is in tests/multiprocess."""

import threading
from collections.abc import Sequence


class KeyValuesOfOne:
    """What `distributed.kv_store` uses of JAX's client, its errors included; it counts what it is asked."""

    def __init__(self, processes: int, *, absent: Sequence[int] = ()) -> None:
        self.processes = processes
        self.absent = absent
        """Those that a barrier's error names: the service sees no ids here."""
        self.questions = 0
        """Values set and read, barriers not counted."""
        self.bytes = 0
        """Characters of those values."""
        self._values: dict[str, str] = {}
        self._barriers: dict[str, threading.Barrier] = {}
        self._changed = threading.Condition()

    def key_value_set(self, key: str, value: str) -> None:
        with self._changed:
            if key in self._values:
                raise RuntimeError(f"ALREADY_EXISTS: {key}")
            self._values[key] = value
            self._count(value)
            self._changed.notify_all()

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._values, timeout_in_ms / 1000):
                raise RuntimeError(f"DEADLINE_EXCEEDED: {key}")
            self._count(self._values[key])
            return self._values[key]

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        with self._changed:
            return [(name, value) for name, value in self._values.items() if name.startswith(key)]

    def wait_at_barrier(self, barrier_id: str, timeout_in_ms: int) -> None:
        with self._changed:
            barrier = self._barriers.setdefault(barrier_id, threading.Barrier(self.processes))
        try:
            barrier.wait(timeout_in_ms / 1000)
        except threading.BrokenBarrierError as error:
            names = "".join(f"{process}\n" for process in self.absent)
            text = f"DEADLINE_EXCEEDED: Barrier timed out. Id: {barrier_id}::0.\nSome timed out task names:\n{names}\n"
            raise RuntimeError(text) from error

    def _count(self, value: str) -> None:
        self.questions += 1
        self.bytes += len(value)
