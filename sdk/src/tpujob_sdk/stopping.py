"""A request to stop that all processes see at the same step.

One host gets the request first; a process that left its loop alone would leave the others in a collective forever. So
every process counts its calls of `look`. Once a process has a request, a thread of each process publishes its count
and blocks the loop's next `look` until all counts are known: at most one round trip of the key-value store. All stop at
the look after the highest count, which no process has passed. No device is involved, and until then a look costs
nothing.
"""

import contextlib
import threading

from tpujob_trainer.distributed.exit.stop_request import StopRequest
from tpujob_trainer.distributed.kv_store import Coordination, CoordinationError
from tpujob_trainer.values.errors import TrainerError

POLL_SECONDS = 1.0
"""Interval at which a process polls whether another one got a request."""
ANSWER_SECONDS = 15.0
"""Limit for all processes to publish their counts."""


class AgreedStop:
    """Answers whether to stop, with the same answer at the same look on all processes."""

    def __init__(self, stop: StopRequest, coordination: Coordination) -> None:
        """Starts to poll the other processes."""
        self._stop = stop
        self._talk = coordination
        self._changed = threading.Condition()
        self._looks = 0
        self._is_held = False
        self._at: int | None = None
        self._error: TrainerError | None = None
        if coordination.num_processes > 1:
            threading.Thread(target=self._listen, name="agreed-stop", daemon=True).start()

    def look(self) -> bool:
        """Whether to stop now. All processes must call this equally often.

        Raises:
            TrainerError: a process did not publish its count.
        """
        if self._talk.num_processes == 1:
            return self._stop.requested
        with self._changed:
            self._changed.wait_for(lambda: not self._is_held)
            self._looks += 1
            if self._error is not None:
                raise self._error
            return self._at is not None and self._looks >= self._at

    def _listen(self) -> None:
        try:
            self._wait_for_request()
            with self._changed:
                self._is_held = True
                looks = self._looks
            most: int = self._talk.lead_decides_on(
                "stop/looks", looks, lambda said: max(said.values()), limit_seconds=ANSWER_SECONDS
            )
            with self._changed:
                self._at = most + 1
        except TrainerError as error:  # the error of another process is no CoordinationError here
            self._error = error
        finally:
            with self._changed:
                self._is_held = False
                self._changed.notify_all()

    def _wait_for_request(self) -> None:
        """Returns once a stop is requested on any process."""
        key = "stop/asked"
        while self._talk.look_for(key, limit_seconds=POLL_SECONDS) is None:
            if self._stop.requested:
                # If several are asked at once, one is first.
                with contextlib.suppress(CoordinationError):
                    self._talk.set(key, "")
