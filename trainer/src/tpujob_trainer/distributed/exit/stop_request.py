"""Whether a stop of this process is requested, and how much of the grace period is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tpujob_contract.grace import margin_seconds
from tpujob_trainer.distributed.exit.watchdog import Watchdog
from tpujob_trainer.distributed.peers import Peers

AtExit = Callable[[int, str], None]
"""Called with the exit code and the message, at most for a few seconds."""


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
        """`grace_seconds` is the time from being asked to stop to being killed."""
        self.grace_seconds = grace_seconds
        self._clock = clock
        self._on_joined = on_joined
        self._on_watched = on_watched
        self._deadline: float | None = None
        self._in_loop = threading.Event()
        self.exit_callbacks: list[AtExit] = []
        self.final_report: Callable[[], Mapping[str, Any]] | None = None
        """The last report, for the termination message."""
        self.stacks: str | None = None
        """Of all threads, once the process ends because it has stalled."""

    @property
    def requested(self) -> bool:
        """Whether the process was asked to stop."""
        return self._deadline is not None

    def seconds_left(self) -> float:
        """Time until the process ends whatever it is doing; infinite while it is not asked to stop."""
        return float("inf") if self._deadline is None else max(self._deadline - self._clock(), 0.0)

    def entered_loop(self) -> None:
        """From here on the loop looks at `requested` and stops in order."""
        self._in_loop.set()

    def left_loop(self) -> None:
        """From here on, as before the loop, a request ends the process at once."""
        self._in_loop.clear()

    @property
    def is_in_loop(self) -> bool:
        """Whether the loop looks at `requested`."""
        return self._in_loop.is_set()

    def at_exit(self, exit_callback: AtExit) -> None:
        """Has something done with the exit code and message before the process is gone."""
        self.exit_callbacks.append(exit_callback)

    def joined(self, peers: Peers) -> None:
        """From here on a failure of this process is announced to the others, and one of theirs ends this one at once.

        Nothing can go on without them, and waiting for JAX's heartbeat would hide who failed first.
        """
        self._on_joined(peers)

    def watched(self, watchdog: Watchdog) -> None:
        """From here on the process ends when it makes no progress."""
        self._on_watched(watchdog)

    def request(self) -> None:
        """Asks to stop, as the first signal does."""
        self._deadline = self._clock() + self.grace_seconds - margin(self.grace_seconds)


def margin(grace_seconds: float) -> float:
    """Seconds kept between our own end and the kill: what the launcher keeps for itself, and what leaving takes."""
    return margin_seconds(grace_seconds) + leaving_seconds(grace_seconds)


def leaving_seconds(grace_seconds: float) -> float:
    """Seconds to leave in when the time is over: a tenth of the grace period, 1 to 10 s."""
    return min(max(grace_seconds / 10, 1.0), 10.0)
