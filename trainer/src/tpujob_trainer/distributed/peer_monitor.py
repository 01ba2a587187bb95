"""The connection that each process keeps to process 0, from the rendezvous to its end.

- A process that fails reports it there, and all end at once, naming the first.
- A connection that breaks without a word is a process that was killed; one that is silent for the heartbeat, a process
  or a machine that hangs. JAX would find out too, and abort (134) without saying who.
- It is the connection of the rendezvous, kept: no port of its own, and it is there before JAX's service is.
- One thread, small messages, no waiting on anybody: a process that reads nothing harms only itself.
- No turn of the thread looks at all lines, and it takes what ten thousand processes say a few times a second.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import logging
import math
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tpujob_trainer.distributed import failure as failures
from tpujob_trainer.distributed.failure import Failure, ProgressState
from tpujob_trainer.distributed.rendezvous_messages import process_name, to_line

logger = logging.getLogger(__name__)

BEATS = 5
"""Signs of life within one heartbeat limit."""
STRAGGLER_BEATS = 2
"""Without progress on process 0: within the second of them all others have reported their steps."""
ENDING = ("failed", "stopping", "finished")
"""Phases in which processes do not go on together."""
ANSWER_SECONDS = 1.5
"""For process 0 to say who was first, and for the others to have heard it."""
MAX_LINE_BYTES = 64 * 1024
MANY_LINES = 64
"""Above that, what is said within `PAUSE_SECONDS` is heard in one turn: turns would cost more than what they hear."""
PAUSE_SECONDS = 0.05


@dataclasses.dataclass(eq=False)
class _Line:
    """A connection to another process."""

    process: int
    connection: socket.socket
    heard_at: float
    heard: bytes = b""
    is_done: bool = False
    """It has signed off, or is gone."""


class Peers:
    """The other processes of the run. Safe to use from any thread."""

    def __init__(
        self,
        process_id: int,
        hosts: Sequence[str],
        connections: Mapping[int, socket.socket],
        *,
        heartbeat_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is sent or received before `start`.

        Args:
            process_id: Of this process.
            hosts: The host name of each process; "" where it is not known, which it need not be but on process 0.
            connections: By process: to all others on process 0, else to process 0. They are closed at the end.
            heartbeat_seconds: Silence after which a process counts as lost.
            clock: Monotonic, in seconds.
        """
        self.process_id = process_id
        self.heartbeat_seconds = heartbeat_seconds
        self.asked: str | None = None
        """Who was asked to stop first, as in "SIGTERM at process 1 on host h"; None: no process, as far as is known."""
        self._hosts = list(hosts)
        self._clock = clock
        self._lock = threading.RLock()
        self._verdict: Failure | None = None
        self._decided = threading.Event()
        self._parted = threading.Event()
        self._has_said_goodbye = False
        self._progress_state: Callable[[], ProgressState] = ProgressState
        self._progress_states: dict[int, ProgressState] = {}
        self._beat_at: dict[int, float] = {}
        self._selector = selectors.DefaultSelector()
        now = clock()
        self._lines = [_Line(process, connection, now) for process, connection in sorted(connections.items())]
        self._awaited = dict.fromkeys(self._lines)
        """Neither done nor silent; in order, who was heard longest ago first."""
        self._num_open = len(self._lines)
        """Lines that are not done."""
        for line in self._lines:
            line.connection.setblocking(False)
            self._selector.register(line.connection, selectors.EVENT_READ, line)

    @property
    def is_lead(self) -> bool:
        """Whether this is process 0, which all others are connected to."""
        return self.process_id == 0

    def name(self, process_id: int) -> str:
        """A process as people look for it: "process 3 on host h"."""
        return process_name(process_id, self._hosts)

    def start(
        self,
        *,
        on_failure: Callable[[Failure], None],
        progress_state: Callable[[], ProgressState] = ProgressState,
        on_beat: Callable[[], None] = lambda: None,
    ) -> None:
        """Starts to listen and to send.

        Args:
            on_failure: Called once, in a thread, when the run is over for a reason that is not this process's own.
            progress_state: How far this process has come.
            on_beat: Called with every sign of life.
        """
        self._on_failure, self._progress_state, self._on_beat = on_failure, progress_state, on_beat
        now = self._clock()
        for line in self._lines:
            line.heard_at = now
        threading.Thread(target=self._run, name="peers", daemon=True).start()

    def fail(self, failure: Failure) -> Failure:
        """Tells all why this process ends; the failure that was first, which may be another's."""
        if self.is_lead:
            self._decide_on(failure)
        else:
            self._say({"failure": dataclasses.asdict(failure)})
            self._decided.wait(ANSWER_SECONDS)
        return self._verdict or failure

    def wait(self, limit_seconds: float) -> Failure | None:
        """Why the run is over, waiting for it to be known."""
        self._decided.wait(limit_seconds)
        return self._verdict

    def stragglers(self) -> str | None:
        """The process behind the others, and where, while none makes progress; None while all do, or none stands out.

        Known to process 0 alone.
        """
        own, interval = self._progress_state(), self.heartbeat_seconds / BEATS
        if not self.is_lead or own.seconds <= STRAGGLER_BEATS * interval or own.phase in ENDING:
            return None
        # A message from before a process stood still shows where it was, not where it is.
        standing_since = self._clock() - own.seconds + interval
        others = (process for process in range(len(self._hosts)) if process != self.process_id)
        if any(self._beat_at.get(process, -math.inf) < standing_since for process in others):
            return None
        return failures.stragglers({**self._progress_states, self.process_id: own}, self.name) or None

    def announce_stop(self, why: str) -> None:
        """Announces that this process is asked to stop. For the others' logs; the step carries the request itself."""
        self._note_asked(f"{why} at {self.name(self.process_id)}")

    def disconnect(self, limit_seconds: float = ANSWER_SECONDS) -> None:
        """Says goodbye, so as not to count as lost; waits until the other end has heard it or is gone."""
        with self._lock:
            self._has_said_goodbye = True
        # Also to those that sent theirs before: they wait for this one.
        self._say({"bye": True}, self._lines)
        self._parted.wait(limit_seconds)

    def _run(self) -> None:
        interval = self.heartbeat_seconds / BEATS
        next_beat = 0.0
        while True:
            if self._clock() >= next_beat:
                next_beat = self._clock() + interval
                self._beat()
            for key, _ in self._selector.select(max(next_beat - self._clock(), 0)):
                self._receive(key.data)
            self._notice_silence()
            if not self._awaited:
                self._parted.set()
            if not self._num_open:
                return
            if self._num_open > MANY_LINES:
                time.sleep(PAUSE_SECONDS)

    def _beat(self) -> None:
        own = self._progress_state()
        self._progress_states[self.process_id] = own
        self._say({"beat": dataclasses.asdict(own)})
        self._on_beat()

    def _receive(self, line: _Line) -> None:
        try:
            heard = line.connection.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:
            self._close(line)
            return
        line.heard_at = self._clock()
        if line in self._awaited:
            del self._awaited[line]
            self._awaited[line] = None
        *whole, line.heard = (line.heard + heard).split(b"\n")
        if len(line.heard) > MAX_LINE_BYTES:
            line.heard = b""
        for text in whole:
            # What cannot be read comes from a newer or older trainer: nothing to end a run for.
            with contextlib.suppress(ValueError, KeyError, TypeError):
                self._hear(line, json.loads(text))

    def _hear(self, line: _Line, said: Mapping[str, Any]) -> None:
        if "beat" in said:
            self._progress_states[line.process] = ProgressState(**said["beat"])
            self._beat_at[line.process] = self._clock()
        elif "failure" in said and self.is_lead:
            self._decide_on(Failure.parse(said["failure"]), from_elsewhere=True)
        elif "verdict" in said and line.process == 0:
            failure = Failure.parse(said["verdict"])
            if 0 <= failure.process < len(self._hosts) and isinstance(said.get("host"), str):
                self._hosts[failure.process] = said["host"]
            self._decide(failure, from_elsewhere=True)
        elif "asked" in said:
            self._note_asked(str(said["asked"])[: failures.MESSAGE_CHARACTERS])
        elif "bye" in said:
            self._done(line)
            if self.is_lead:
                # Its last word; our own goodbye comes when we go.
                self._selector.unregister(line.connection)

    def _close(self, line: _Line) -> None:
        was_done = line.is_done
        self._done(line)
        self._selector.unregister(line.connection)
        line.connection.close()
        if not was_done:
            self._decide_on(failures.lost([line.process], self.name), from_elsewhere=True)

    def _done(self, line: _Line) -> None:
        if not line.is_done:
            line.is_done = True
            self._num_open -= 1
            self._awaited.pop(line, None)

    def _notice_silence(self) -> None:
        now = self._clock()
        silent = list(itertools.takewhile(lambda line: now - line.heard_at > self.heartbeat_seconds, self._awaited))
        if silent:
            for line in silent:
                del self._awaited[line]
            longest = max(now - line.heard_at for line in silent)
            found = failures.lost([line.process for line in silent], self.name, silent_seconds=longest)
            self._decide_on(found, from_elsewhere=True)

    def _decide_on(self, failure: Failure, *, from_elsewhere: bool = False) -> None:
        if failure.kind == "stalled":
            self._progress_states[self.process_id] = self._progress_state()
            failure = failures.stalled(failure, self._progress_states, self.name)
        self._decide(failure, from_elsewhere=from_elsewhere)

    def _decide(self, failure: Failure, *, from_elsewhere: bool) -> None:
        with self._lock:
            if self._verdict is not None or (self._has_said_goodbye and failure.kind == "lost"):
                return
            self._verdict = failure
            if self.is_lead:
                host = self._hosts[failure.process] if 0 <= failure.process < len(self._hosts) else ""
                self._say({"verdict": dataclasses.asdict(failure), "host": host})
        self._decided.set()
        if from_elsewhere and (failure.process != self.process_id or failure.kind == "lost"):
            # Not in this thread, which has to hear the others go.
            threading.Thread(target=self._on_failure, args=(failure,), name="failure", daemon=True).start()

    def _note_asked(self, who: str) -> None:
        with self._lock:
            if self.asked is not None:
                return
            self.asked = who
        self._say({"asked": who})

    def _say(self, values: Mapping[str, Any], lines: Sequence[_Line] | None = None) -> None:
        """Says something on these lines; without them, to all who have not gone."""
        text = to_line(values)
        with self._lock:
            for line in [line for line in self._lines if not line.is_done] if lines is None else lines:
                # What does not fit at once goes to a peer that reads nothing, which its silence will show.
                with contextlib.suppress(OSError):
                    line.connection.send(text)
