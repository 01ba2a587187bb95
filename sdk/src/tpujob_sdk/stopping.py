"""A request to stop that all processes see at the same step.

One host is asked first; a process that left its loop alone would leave the others in a collective for ever. So every
process counts how often it has looked. Once anybody is asked, a thread of each tells its count, and holds back the
loop's next look until all counts are known: at most a round of the key-value store. All stop at the look after the
highest count, which no process has passed. No device is involved, and until then a look costs nothing.
"""

from __future__ import annotations

import contextlib
import threading

from tpujob_trainer.distributed.exit.stop_request import StopRequest
from tpujob_trainer.distributed.kv_store import Coordination, CoordinationError
from tpujob_trainer.errors import TrainerError

POLL_SECONDS = 1.0
"""How often a process looks whether another one was asked."""
ANSWER_SECONDS = 15.0
"""For all processes to tell their counts."""


class AgreedStop:
    """Whether to stop, the same answer at the same look on all processes."""

    def __init__(self, stop: StopRequest, coordination: Coordination, *, name: str = "stop") -> None:
        """Starts to listen to the others; `name` is that of this agreement among all of a run."""
        self._stop = stop
        self._talk = coordination
        self._name = name
        self._changed = threading.Condition()
        self._looks = 0
        self._is_held = False
        self._at: int | None = None
        self._error: TrainerError | None = None
        if coordination.num_processes > 1:
            threading.Thread(target=self._listen, name="agreed-stop", daemon=True).start()

    def look(self) -> bool:
        """Whether to stop now. Every process asks equally often.

        Raises:
            TrainerError: a process did not tell how far it is.
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
                f"{self._name}/looks", looks, lambda said: max(said.values()), limit_seconds=ANSWER_SECONDS
            )
            with self._changed:
                self._at = most + 1
        except TrainerError as error:  # what another process says of itself is no CoordinationError here
            self._error = error
        finally:
            with self._changed:
                self._is_held = False
                self._changed.notify_all()

    def _wait_for_request(self) -> None:
        """Returns once a stop of any process is requested."""
        key = f"{self._name}/asked"
        while self._talk.look_for(key, limit_seconds=POLL_SECONDS) is None:
            if self._stop.requested:
                # Of several that are asked at once, one is first.
                with contextlib.suppress(CoordinationError):
                    self._talk.set(key, "")
