"""Experiment trackers: only process 0 uses them, each in its own thread, and they never block the training.

Only process 0 imports and opens a tracker: other hosts need neither its package nor a login. Events that a tracker
fails to take are counted, and the first is logged; events that come too fast are dropped.
"""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tpujob_trainer.values import errors

logger = logging.getLogger(__name__)

QUEUE_LENGTH = 1000
REOPEN_SECONDS = 60.0
"""Time after which opening a tracker is tried again."""


class Tracker(Protocol):
    """A receiver of numbers and texts. One thread uses it; its methods may raise and may be slow."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Records numbers of a step."""

    def text(self, step: int, prompt: str, text: str) -> None:
        """Records a text that the model wrote."""

    def close(self) -> None:
        """Ends the tracker; nothing follows."""


_Event = Callable[[Tracker], None]


class Background:
    """A tracker in its own thread, with a queue of limited length."""

    def __init__(
        self,
        name: str,
        open_tracker: Callable[[], Tracker],
        *,
        lost: Callable[[str], None] = lambda name: None,
        queue_length: int = QUEUE_LENGTH,
        reopen_seconds: float = REOPEN_SECONDS,
    ) -> None:
        """Starts the thread, which opens the tracker.

        Args:
            name: For messages.
            open_tracker: Opens the tracker; may block and raise.
            lost: Called with the name for each event that is lost.
            queue_length: The most events that may wait.
            reopen_seconds: Time after which opening is tried again.
        """
        self.name = name
        self._open = open_tracker
        self._lost = lost
        self._reopen_seconds = reopen_seconds
        self._tracker: Tracker | None = None
        self._tried_at = float("-inf")
        self._has_warned = False
        self._events: queue.Queue[_Event | None] = queue.Queue(queue_length)
        self._thread = threading.Thread(target=self._run, name=f"tracker-{name}", daemon=True)
        self._thread.start()

    def tell(self, event: _Event) -> None:
        """Queues a call of the tracker; returns at once."""
        try:
            self._events.put_nowait(event)
        except queue.Full:
            self._fail("it is slower than the training; what does not fit is left out")

    def close(self, limit_seconds: float) -> bool:
        """Sends what is left and closes the tracker; returns whether this was done within the limit."""
        deadline = time.monotonic() + limit_seconds
        if self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._events.put(None, timeout=limit_seconds)
        self._thread.join(max(deadline - time.monotonic(), 0.0))
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._ready()
        while (event := self._events.get()) is not None:
            if self._ready():
                self._try(event)
            else:
                self._lost(self.name)
        if self._tracker is not None:
            self._try(lambda tracker: tracker.close())

    def _ready(self) -> bool:
        if self._tracker is None and time.monotonic() - self._tried_at >= self._reopen_seconds:
            self._tried_at = time.monotonic()
            try:
                self._tracker = self._open()
            except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
                self._warn(f"cannot be opened: {errors.brief(error)}")
        return self._tracker is not None

    def _try(self, event: _Event) -> None:
        assert self._tracker is not None
        try:
            event(self._tracker)
        except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
            self._fail(errors.brief(error))

    def _fail(self, why: str) -> None:
        self._lost(self.name)
        self._warn(why)

    def _warn(self, why: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning("The tracker %s: %s; the training goes on, and this is said once", self.name, why)


class Trackers:
    """All trackers of a run; empty on processes other than 0."""

    def __init__(self, trackers: Sequence[Background] = ()) -> None:
        self._trackers = trackers

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Sends the numbers of a step to all trackers."""
        kept = dict(values)
        for tracker in self._trackers:
            tracker.tell(lambda to: to.scalars(step, kept))

    def text(self, step: int, prompt: str, text: str) -> None:
        """Sends a text, which starts with the prompt, to all trackers."""
        for tracker in self._trackers:
            tracker.tell(lambda to: to.text(step, prompt, text))

    def close(self, limit_seconds: float) -> None:
        """Closes all trackers within the limit; those that take longer are abandoned."""
        deadline = time.monotonic() + limit_seconds
        for tracker in self._trackers:
            if not tracker.close(max(deadline - time.monotonic(), 0.0)):
                logger.warning("The tracker %s did not end within %.0f s and is left", tracker.name, limit_seconds)
