"""Checks that all processes make the same calls: a call that only some make is reported with its file and line.

A process that saves alone would wait for the others until the watchdog ends the run. So each such call is announced
before it waits for anything. Every other process compares it with its own call of the same number and with the progress
of its loop: a process that has continued without the call reports that, and the caller ends with an error that has both
places.
"""

import contextlib
import dataclasses
import inspect
import json
import logging
import threading
from pathlib import Path
from typing import Any

from tpujob_trainer.distributed.kv_store import Coordination, CoordinationError
from tpujob_trainer.values.errors import ConfigurationError, TrainerError

logger = logging.getLogger(__name__)

ARRIVAL_SECONDS = 3600.0
"""Limit for the slowest process to make a call; the watchdog and the heartbeat detect most hangs earlier."""
POLL_SECONDS = 1.0
"""Interval at which a process polls for calls of the others, and a waiting caller for objections."""
LATE_SECONDS = 15.0
"""Time after which a process logs that another one waits for its call."""
_WRONG = "calls/wrong"
_SDK = str(Path(__file__).parent)


@dataclasses.dataclass(frozen=True)
class Call:
    """A call, and the progress of its process's loop at that time."""

    name: str
    """As the user wrote it: "checkpoints.save(5)"."""
    where: str
    """File and line."""
    step: int | None
    """The step that the call is about; None: no step."""
    looks: int
    """Earlier calls of `Job.stop_requested`."""
    batches: int
    """Batches that the main thread took earlier."""
    reported: int | None
    """Step of the last `Job.report`; None: no report yet."""


class AgreedCalls:
    """The calls of one process, compared with those of the others. Called in the main thread."""

    def __init__(self, coordination: Coordination) -> None:
        """Starts to listen to the other processes."""
        self._talk = coordination
        self._changed = threading.Condition()
        self._made: list[Call] = []
        self._looks = 0
        self._batches = 0
        self._reported: int | None = None
        self._last = ""
        if coordination.num_processes > 1:
            threading.Thread(target=self._listen, name="agreed-calls", daemon=True).start()

    def looked(self) -> None:
        """Records that the loop asked whether to stop."""
        with self._changed:
            self._looks += 1
            self._last = f"job.stop_requested() at {_users_line()}"
            self._changed.notify_all()

    def took_batch(self) -> None:
        """Records that the loop takes a batch; batches of other threads are not counted, as these may run ahead."""
        if threading.current_thread() is threading.main_thread():
            with self._changed:
                self._batches += 1
                self._last = f"next(…) at {_users_line()}"
                self._changed.notify_all()

    def reported(self, step: int) -> None:
        """Records that the loop reported a step."""
        with self._changed:
            self._reported = step
            self._last = f"job.report(step={step}) at {_users_line()}"
            self._changed.notify_all()

    def meet(self, name: str, step: int | None = None) -> None:
        """Returns once all processes make this call.

        Args:
            name: As the user wrote it.
            step: The step that the call is about.

        Raises:
            ConfigurationError: another process makes a different call instead, or has continued without it.
            CoordinationError: a process did not make the call in time.
        """
        if self._talk.num_processes == 1:
            return
        with self._changed:
            call = Call(name, _users_line(), step, self._looks, self._batches, self._reported)
            self._made.append(call)
            number = len(self._made)
            self._changed.notify_all()
        said = {"process": self._talk.process_id, **dataclasses.asdict(call)}
        with contextlib.suppress(CoordinationError):  # another process was first
            self._talk.set(f"calls/{number}", json.dumps(said))
        self._arrive(number, name)

    def _arrive(self, number: int, name: str) -> None:
        arrived = threading.Event()
        failed: list[TrainerError] = []

        def arrive() -> None:
            try:
                self._talk.barrier(f"calls/{number}/{name}", limit_seconds=ARRIVAL_SECONDS)
            except TrainerError as error:
                failed.append(error)
            arrived.set()

        threading.Thread(target=arrive, name=f"call-{number}", daemon=True).start()
        while not arrived.wait(POLL_SECONDS):
            wrong = self._talk.look_for(_WRONG, limit_seconds=POLL_SECONDS)
            if wrong is not None and not arrived.is_set():
                raise ConfigurationError(wrong)
        if failed:
            raise failed[0]

    def _listen(self) -> None:
        """Compares each announced call of another process with the call of this process."""
        number = 1
        try:
            while True:
                text = self._talk.look_for(f"calls/{number}", limit_seconds=POLL_SECONDS)
                if text is None:
                    continue
                if (wrong := self._judge(number, json.loads(text))) is not None:
                    logger.error("%s", wrong)
                    with contextlib.suppress(CoordinationError):  # another process reported it first
                        self._talk.set(_WRONG, wrong)
                    return
                number += 1
        except TrainerError as error:
            logger.debug("The calls of the other processes are not known any more: %s", error)

    def _judge(self, number: int, said: dict[str, Any]) -> str | None:
        """Waits, and returns why this process does not make the call; None: it makes it."""
        caller, asked = said.pop("process"), Call(**said)
        others = f"process {caller} calls {asked.name} at {asked.where}"
        with self._changed:

            def is_known() -> bool:
                return len(self._made) >= number or self._is_beyond(asked)

            while not self._changed.wait_for(is_known, timeout=LATE_SECONDS):
                logger.warning(
                    "%s and waits for process %d, which has not made this call; its last one is %s",
                    others,
                    self._talk.process_id,
                    self._last or "none",
                )
            own = self._made[number - 1] if len(self._made) >= number else None
            if own is not None and own.name == asked.name:
                return None
            this = f"process {self._talk.process_id}"
            does = f"{this} calls {own.name} at {own.where}" if own else f"{this} has gone on without it: {self._last}"
        return f"{others}, and {does}; every process makes this call, at the same step: take it out of the condition"

    def _is_beyond(self, asked: Call) -> bool:
        """Whether the loop of this process is past the point at which all processes have to make the call."""
        if self._looks > asked.looks or self._batches > asked.batches:
            return True
        if self._reported is None or asked.reported is None:
            return False
        return self._reported > max(asked.reported, asked.reported if asked.step is None else asked.step)


def _users_line() -> str:
    """File and line of the nearest caller outside of this package."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_SDK):
        frame = frame.f_back
    return "an unknown line" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
