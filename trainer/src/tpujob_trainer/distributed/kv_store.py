"""Key-value store, barriers and broadcast between the processes of a run: no devices, and always a time limit.

Process 0 collects the values of all processes and publishes only the result, never the collection: with ten thousand
processes, all values read by all would be gigabytes. A collective call makes at most three operations per process.

This is the only module that uses `jax._src.distributed`, whose client JAX does not export.
"""

import contextlib
import itertools
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from tpujob_contract.process_ids import MAX_NAMED, listed, process_name
from tpujob_trainer.values import errors

logger = logging.getLogger(__name__)

PREFIX = "tpujob/"


class CoordinationError(errors.TrainerError):
    """A process did not answer within the limit, or the service is gone."""


class KeyValues(Protocol):
    """The part of JAX's client that is used here."""

    def key_value_set(self, key: str, value: str) -> None:
        """Sets a key that was not set before."""

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        """Waits for a key."""
        ...

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        """All keys below a key, with their values."""
        ...

    def wait_at_barrier(self, barrier_id: str, timeout_in_ms: int) -> None:
        """Waits for all processes; each name works once."""


class Coordination:
    """The exchange of values between this process and the others. Safe to use from any thread.

    Every name can be used only once: the service keeps the first value.
    """

    def __init__(self, client: KeyValues | None, *, process_id: int, hosts: Sequence[str]) -> None:
        """`hosts` as in `peers.Membership`; `client` is None for a single process."""
        self._client = client
        self._own: dict[str, str] = {}
        self._told = threading.Condition()
        self.hosts = tuple(hosts)
        """The host name of each process; "": unknown. Only process 0 knows all of them."""
        self.process_id = process_id
        self.num_processes = len(hosts)

    def name(self, process_id: int) -> str:
        """The name of a process for messages: "process 3 on host h"."""
        return process_name(process_id, self.hosts[process_id] if 0 <= process_id < len(self.hosts) else "")

    def set(self, key: str, value: str) -> None:
        """Publishes a value to all processes."""
        if self._client is None:
            with self._told:
                self._own[key] = value
                self._told.notify_all()
            return
        with _named(f"telling {key}"):
            self._client.key_value_set(PREFIX + key, value)

    def get(self, key: str, *, limit_seconds: float) -> str:
        """Waits for the value of a key, and returns it.

        Raises:
            CoordinationError: it was not set within the limit.
        """
        if self._client is None:
            if key not in self._own:
                raise CoordinationError(f"nobody said {key}")
            return self._own[key]
        with _named(f"waiting up to {limit_seconds:g} s for {key}"):
            return self._client.blocking_key_value_get(PREFIX + key, _milliseconds(limit_seconds))

    def look_for(self, key: str, *, limit_seconds: float) -> str | None:
        """Waits for the value of a key, and returns it; None: it was not set within the limit.

        Raises:
            CoordinationError: the service is gone.
        """
        if self._client is None:
            with self._told:
                self._told.wait_for(lambda: key in self._own, timeout=limit_seconds)
                return self._own.get(key)
        try:
            return self.get(key, limit_seconds=limit_seconds)
        except CoordinationError as error:
            if "DEADLINE_EXCEEDED" in str(error):
                return None
            raise

    def barrier(self, name: str, *, limit_seconds: float) -> None:
        """Returns when all processes have reached the barrier.

        Raises:
            CoordinationError: a process did not arrive within the limit; the message names it.
        """
        if self._client is not None:
            with _named(f"waiting up to {limit_seconds:g} s for all processes at {name}", self.name):
                self._client.wait_at_barrier(PREFIX + name, _milliseconds(limit_seconds))

    def objections(
        self, name: str, own: Any | None, *, limit_seconds: float, rank: Callable[[Any], Any] = lambda value: 0
    ) -> dict[int, Any]:
        """The objections of up to twenty processes, by process id, the same on all processes; empty: there are none.

        A process without an objection only waits at a barrier: with thousands of processes, nothing is collected unless
        something is wrong. Values are JSON.

        Args:
            name: of the question.
            own: the objection of this process; None: it has none.
            limit_seconds: for all processes to arrive.
            rank: the sort key of an objection; the least are kept, and of equal ones those of the first processes.

        Raises:
            CoordinationError: a process did not arrive within the limit; the message names it.
        """

        def first(said: dict[int, Any]) -> dict[int, Any]:
            if len(said) > MAX_NAMED:
                logger.warning("%s: %d processes object, of which %d are named", name, len(said), MAX_NAMED)
            return {i: said[i] for i in sorted(said, key=lambda i: (rank(said[i]), i))[:MAX_NAMED]}

        found = self.lead_decides_on(name, own, first, limit_seconds=limit_seconds)
        return {int(process_id): value for process_id, value in found.items()}

    def lead_decides_on(
        self, name: str, own: Any | None, decide: Callable[[dict[int, Any]], Any], *, limit_seconds: float
    ) -> Any:
        """The result, on every process, of `decide`, which process 0 calls with the values of all processes.

        A process without a value (None) only waits at a barrier. Values are JSON.

        Args:
            name: of the question.
            own: the value of this process; None: it has none.
            decide: takes the values, by process id. All processes read its result: keep it small.
            limit_seconds: for all processes to arrive.

        Raises:
            CoordinationError: a process did not arrive within the limit; the message names it.
            TrainerError: raised by `decide` on process 0; the same on all processes.
        """
        if self._client is None:
            return decide({} if own is None else {0: json.loads(json.dumps(own))})
        if own is not None:
            self.set(f"{name}/{self.process_id}", json.dumps(own))
        self.barrier(f"{name}/said", limit_seconds=limit_seconds)
        return self.lead_decides(f"{name}-all", lambda: decide(self._said_below(name)), limit_seconds=limit_seconds)

    def _said_below(self, name: str) -> dict[int, Any]:
        assert self._client is not None
        with _named(f"collecting {name}"):
            pairs = self._client.key_value_dir_get(f"{PREFIX}{name}/")
        return {int(key.rpartition("/")[2]): json.loads(value) for key, value in pairs}

    def lead_decides(self, name: str, decide: Callable[[], Any], *, limit_seconds: float) -> Any:
        """The result, on every process, of `decide`, which runs only on process 0. The result is JSON.

        Raises:
            TrainerError: raised by `decide` on process 0; the same on all processes.
        """
        if self.process_id == 0:
            try:
                answer: dict[str, Any] = {"result": decide()}
            except errors.TrainerError as error:
                self.set(name, json.dumps(errors.to_dict(error)))
                error.is_shared = True
                raise
            self.set(name, json.dumps(answer))
        else:
            answer = json.loads(self.get(name, limit_seconds=limit_seconds))
            if "error" in answer:
                shared = errors.from_dict(answer)
                shared.is_shared = True
                raise shared
        return answer["result"]


def alone() -> Coordination:
    """The coordination of a single process."""
    return Coordination(None, process_id=0, hosts=[socket.gethostname()])


def of_jax(process_id: int, hosts: Sequence[str]) -> Coordination:
    """The coordination through the client of `jax.distributed.initialize`, which must have run."""
    from jax._src import distributed

    client = distributed.global_state.client
    assert client is not None, "jax.distributed.initialize has not run"
    return Coordination(client, process_id=process_id, hosts=hosts)


def _milliseconds(seconds: float) -> int:
    return max(int(seconds * 1000), 1)


@contextlib.contextmanager
def _named(doing: str, name: Callable[[int], str] = "process {}".format) -> Iterator[None]:
    """Turns errors of the service into `CoordinationError`, with what was being done."""
    try:
        yield
    except RuntimeError as error:  # JaxRuntimeError; a plain one in older versions
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        absent = [name(process) for process in _absent(str(error))]
        who = f"{listed(absent)} did not come; " if absent else ""
        raise CoordinationError(f"{doing}: {who}{first}") from error


def _absent(text: str) -> list[int]:
    """The processes that did not reach a barrier, from JAX's error, which has some of them, one per line."""
    _, _, names = text.partition("timed out task names:\n")
    return [int(line) for line in itertools.takewhile(str.isdigit, names.splitlines())]
