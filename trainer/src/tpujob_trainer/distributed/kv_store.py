"""Key-value store, barriers and broadcast between the processes of a run: no device, and always a time limit.

The one place that touches `jax._src.distributed`, whose client JAX does not export.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tpujob_trainer import errors

logger = logging.getLogger(__name__)

PREFIX = "tpujob/"
ANSWER_SECONDS = 30.0
"""Time for process 0's word to arrive, on top of what it waits for."""


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
        """All that is set below a key."""
        ...

    def wait_at_barrier(self, barrier_id: str, timeout_in_ms: int) -> None:
        """Waits for all processes; each name works once."""


class Coordination:
    """What one process says to the others, and hears from them. Safe to use from any thread.

    Every name may be used once: the service keeps the first value.
    """

    def __init__(self, client: KeyValues | None, *, process_id: int, hosts: Sequence[str]) -> None:
        """`hosts` has the host name of each process; `client` is None for a process on its own."""
        self._client = client
        self._own: dict[str, str] = {}
        self._told = threading.Condition()
        self.hosts = tuple(hosts)
        """The host name of each process."""
        self.process_id = process_id
        self.num_processes = len(hosts)

    def name(self, process_id: int) -> str:
        """A process as people look for it: "process 3 on host h"."""
        return f"process {process_id} on host {self.hosts[process_id]}"

    def set(self, key: str, value: str) -> None:
        """Makes a value known to all processes."""
        if self._client is None:
            with self._told:
                self._own[key] = value
                self._told.notify_all()
            return
        with _named(f"telling {key}"):
            self._client.key_value_set(PREFIX + key, value)

    def get(self, key: str, *, limit_seconds: float) -> str:
        """The value of a key, waiting for it.

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
        """The value of a key, waiting for it; None when it was not set within the limit.

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
        """Returns when all processes have come here.

        Raises:
            CoordinationError: a process did not come within the limit; the message names it.
        """
        if self._client is not None:
            with _named(f"waiting up to {limit_seconds:g} s for all processes at {name}"):
                self._client.wait_at_barrier(PREFIX + name, _milliseconds(limit_seconds))

    def gather(self, name: str, value: Any, *, limit_seconds: float) -> list[Any]:
        """The value of every process, in order of their ids. Values are JSON.

        Raises:
            CoordinationError: a process sent nothing within the limit; the message names it.
        """
        self.set(f"{name}/{self.process_id}", json.dumps(value))

        def collect() -> list[Any]:
            answers = self._answers(name, limit_seconds)
            if silent := [self.name(i) for i in range(self.num_processes) if i not in answers]:
                raise CoordinationError(f"{', '.join(silent)} said nothing about {name} within {limit_seconds:g} s")
            return [answers[i] for i in range(self.num_processes)]

        # Process 0 collects and tells: with n processes that is 2n questions to the service instead of n².
        everything: list[Any] = self.lead_decides(f"{name}/all", collect, limit_seconds=limit_seconds + ANSWER_SECONDS)
        return everything

    def objections(self, name: str, own: Any | None, *, limit_seconds: float) -> dict[int, Any]:
        """The objections of processes, by their ids; empty without one, the same on all processes.

        Who has nothing against it only arrives at a barrier: among thousands of processes nothing is collected, unless
        something is wrong. Values are JSON.

        Args:
            name: of the question.
            own: what this process has against it; None: nothing.
            limit_seconds: for all to arrive.

        Raises:
            CoordinationError: a process did not come within the limit; the message names it.
        """
        found = self.lead_decides_on(name, own, lambda said: said, limit_seconds=limit_seconds)
        return {int(process_id): value for process_id, value in found.items()}

    def lead_decides_on(
        self, name: str, own: Any | None, decide: Callable[[dict[int, Any]], Any], *, limit_seconds: float
    ) -> Any:
        """What `decide` returns on process 0 for what the processes say, on every process.

        Who has nothing to say (None) only arrives at a barrier. Values are JSON.

        Args:
            name: of the question.
            own: what this process says; None: nothing.
            decide: given the values, by the ids of the processes.
            limit_seconds: for all to arrive.

        Raises:
            CoordinationError: a process did not come within the limit; the message names it.
            TrainerError: what `decide` raised on process 0, alike on all processes.
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

    def _answers(self, name: str, limit_seconds: float) -> dict[int, Any]:
        deadline = time.monotonic() + limit_seconds
        answers = {}
        for other in range(self.num_processes):
            with contextlib.suppress(CoordinationError):
                left = max(deadline - time.monotonic(), 0.01)
                answers[other] = json.loads(self.get(f"{name}/{other}", limit_seconds=left))
        return answers

    def lead_decides(self, name: str, decide: Callable[[], Any], *, limit_seconds: float) -> Any:
        """What `decide` returns on process 0, on every process; it runs nowhere else. The result is JSON.

        Raises:
            TrainerError: what `decide` raised on process 0, alike on all processes.
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
    """For one process on its own."""
    return Coordination(None, process_id=0, hosts=[socket.gethostname()])


def of_jax(process_id: int, hosts: Sequence[str]) -> Coordination:
    """Through the client of `jax.distributed.initialize`, which must have run."""
    from jax._src import distributed

    client = distributed.global_state.client
    assert client is not None, "jax.distributed.initialize has not run"
    return Coordination(client, process_id=process_id, hosts=hosts)


def _milliseconds(seconds: float) -> int:
    return max(int(seconds * 1000), 1)


class _named:  # noqa: N801 - reads as a statement
    """Turns what the service raises into our error, with what was being done."""

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        # JaxRuntimeError; a plain RuntimeError in older versions.
        if isinstance(error, RuntimeError):
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise CoordinationError(f"{self._doing}: {first}") from error
