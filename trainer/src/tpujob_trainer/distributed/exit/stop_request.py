"""Whether a stop of this process is requested, and how much of the grace period is left."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tpujob_contract.environment import margin_seconds
from tpujob_trainer.distributed.exit.watchdog import Watchdog
from tpujob_trainer.distributed.peers import Peers

AtExit = Callable[[int, str], None]
"""Called with the exit code and the message; may take a few seconds."""


class StopRequest:
    """The request to stop, as the training loop sees it. Safe to read from any thread."""

    def __init__(
        self,
        *,
        grace_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        on_joined: Callable[[Peers], None] = lambda peers: None,
        on_watched: Callable[[Watchdog], None] = lambda watchdog: None,
    ) -> None:
        """`grace_seconds` is the time from the request to stop until the process is killed."""
        self.grace_seconds = grace_seconds
        self._clock = clock
        self._on_joined = on_joined
        self._on_watched = on_watched
        self._deadline: float | None = None
        self._in_loop = threading.Event()
        self.exit_callbacks: list[AtExit] = []
        self.final_report: Callable[[], Mapping[str, Any]] | None = None
        """Returns the last report, for the termination message."""
        self.stacks: str | None = None
        """The stacks of all threads, once the process ends because it has stalled."""

    @property
    def requested(self) -> bool:
        """Whether the process was asked to stop."""
        return self._deadline is not None

    def seconds_left(self) -> float:
        """Seconds until the process ends, whatever it is doing; infinite until it is asked to stop."""
        return float("inf") if self._deadline is None else max(self._deadline - self._clock(), 0.0)

    def entered_loop(self) -> None:
        """Marks the start of the training loop, which checks `requested` and stops in order."""
        self._in_loop.set()

    def left_loop(self) -> None:
        """Marks the end of the loop: from now on, as before it, a request ends the process at once."""
        self._in_loop.clear()

    @property
    def is_in_loop(self) -> bool:
        """Whether the training loop runs, which checks `requested`."""
        return self._in_loop.is_set()

    def at_exit(self, exit_callback: AtExit) -> None:
        """Registers a callback that gets the exit code and message before the process ends."""
        self.exit_callbacks.append(exit_callback)

    def joined(self, peers: Peers) -> None:
        """Announces a failure of this process to the others from now on; one of theirs ends this process at once.

        No process can continue without the others, and waiting for JAX's heartbeat would hide which one failed first.
        """
        self._on_joined(peers)

    def watched(self, watchdog: Watchdog) -> None:
        """Starts the watchdog: from now on, the process ends if it makes no progress."""
        self._on_watched(watchdog)

    def request(self) -> None:
        """Requests a stop, as the first signal does."""
        self._deadline = self._clock() + self.grace_seconds - margin(self.grace_seconds)


def margin(grace_seconds: float) -> float:
    """Seconds between the deadline of this process and the kill: the launcher's margin, and the time to leave."""
    return margin_seconds(grace_seconds) + leaving_seconds(grace_seconds)


def leaving_seconds(grace_seconds: float) -> float:
    """Seconds to leave after the deadline: a tenth of the grace period, 1 to 10 s."""
    return min(max(grace_seconds / 10, 1.0), 10.0)
