"""The other launchers of a job, as the supervision of a program uses them: what launcher 0 and the others share."""

import logging
import selectors
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Dict, List, Optional

from tpujob_contract.environment import DistributedProcess
from tpujob_contract.exit_codes import KILLED
from tpujob_launcher.peers import messages, program
from tpujob_launcher.peers.messages import END_CHARACTERS, FAILED, LOST, STALLED, Message, printable
from tpujob_launcher.peers.program import ProgramLine
from tpujob_launcher.peers.state import State
from tpujob_launcher.peers.timing import HEARTBEAT_SECONDS, HEARTBEATS, UNCONNECTED_SECONDS

logger = logging.getLogger(__name__)

LEAST_HEARTBEAT_SECONDS, LONGEST_HEARTBEAT_SECONDS = 1.0, 86400.0
"""Limits of what a program may ask for."""
SILENT = "{} sends no heartbeat: it hangs, or its machine or network is gone; after {:.0f} s it counts as lost"


class Peers(ABC):
    """The other launchers, and the program if it connects. No call blocks for long; call them from one thread."""

    def __init__(self, process: DistributedProcess, folder: Optional[Path]) -> None:
        """Connects to no launcher yet. `folder`: an empty one, for the socket of the program."""
        self.replaces_pods = process.pods_before is not None
        """Whether Kubernetes replaces a lost pod while the others wait."""
        self.state = State(process.process_id, is_replacement=bool(process.pods_before))
        self.was_stopped = False
        """Whether this container was asked to stop."""
        self.has_finished = False
        """Whether the program has ended with 0, and does not start again."""
        self.is_of_trainer = False
        """Whether the program is our trainer, which ends when a process is lost, and connects once it has started."""
        self.welcomes = 0
        """How many launchers 0 have welcomed this launcher."""
        self.in_place = process.in_place
        """How often all may start again in these containers."""
        self.process = process
        self.program = ProgramLine(folder)
        self._program_hello: Optional[Dict[str, Any]] = None
        """What the program of this attempt reported about itself; None: it does not connect, or not yet."""
        self._sent: Dict[str, Any] = {}
        """Messages sent to the program of this attempt, by kind."""
        self._next_heartbeat = 0.0
        self.is_silent = False
        """Whether the program was connected, and has stopped sending messages."""
        self._selector = selectors.DefaultSelector()
        self._all = selectors.DefaultSelector()
        self._all.register(self._selector, selectors.EVENT_READ)
        self._all.register(self.program, selectors.EVENT_READ)

    @property
    def limit_seconds(self) -> float:
        """Silence after which a launcher counts as lost: shorter where all start again in their containers."""
        is_short = self._program_hello is not None or self.in_place or self.is_of_trainer
        return self.heartbeat_seconds if is_short else UNCONNECTED_SECONDS

    @property
    def heartbeat_seconds(self) -> float:
        """Silence after which a program that connects counts as lost: several heartbeats are missing by then."""
        asked = self._program_hello.get("heartbeat_seconds") if self._program_hello and self.state.met else None
        is_number = isinstance(asked, (int, float)) and not isinstance(asked, bool)
        if not is_number or asked is None or not 0 < asked <= LONGEST_HEARTBEAT_SECONDS:
            return HEARTBEAT_SECONDS
        return max(float(asked), LEAST_HEARTBEAT_SECONDS)

    def fileno(self) -> int:
        """For `select`: readable when there is something to do."""
        return int(self._all.fileno())

    def fail(self, code: int, at: float, line: str, kind: str = FAILED) -> None:
        """The program has failed, or has ended without success: exit code, Unix time, cause."""
        # Launcher 0 closes the connection on a longer line.
        end = {"code": code, "at": at, "line": printable(line, END_CHARACTERS // 2)}
        of_kind = {} if kind == FAILED else {"kind": kind}
        self.report((messages.ENDED, {"attempt": self.state.attempt, **end, **of_kind}))

    def was_asked(self, by: str) -> None:
        """This container, or its program alone, was asked to stop, for example by "SIGTERM"."""
        self.report_if_connected((messages.ASKED, {"attempt": self.state.attempt, "by": by}))

    def started(self, child: int) -> None:
        """The program runs, as this process."""
        self.program.child = child
        self.start()

    def start(self) -> None:  # noqa: B027 - launcher 0 has nothing to start
        """Connects to launcher 0."""

    def begin(self, attempt: int) -> None:
        """Called before the program of another attempt starts."""
        self.state.begin(attempt)
        self._program_hello, self._sent, self.is_silent = None, {}, False
        self._next_heartbeat = (
            0.0  # due now: until the program connects, the others apply the limit of one that does not
        )
        self.program.begin()

    def step(self) -> None:
        """Handles received messages, and what is due."""
        self._step_connections()
        now = time.monotonic()
        for message in self.program.receive():
            try:
                self._handle_of_program(*message)
            except Exception:  # the launcher outlives whatever its program sends
                logger.exception("a message of the program cannot be handled")
        self._notice_silence(now)
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + self.heartbeat_seconds / HEARTBEATS
            self._send_heartbeat(now)
        self.tell_program()

    def seconds(self) -> Optional[float]:
        """Time until something is due; None: nothing is."""
        return max(0.0, self._next_heartbeat - time.monotonic())

    def tell_program(self) -> None:
        """Sends the program the messages that it does not have yet."""
        state = self.state
        if self._program_hello is None:
            return
        if state.met is not None and program.MET not in self._sent:
            self.program.received_at = time.monotonic()  # its silence so far was expected
            self._next_heartbeat = 0.0  # its heartbeat limit, which may be short, applies from here on
            self._send(program.MET, {**state.met, "hosts": self._hosts()})
        if state.refused is not None:
            self._send(program.REFUSED, state.refused)
        if state.asked:
            self._send(messages.ASKED, {"who": state.asked})
        if state.first is not None:
            code, message = state.following or (min(state.first.code, 1), state.first.line)
            end = {"process": state.first.process, "code": code, "message": message, "kind": state.first.kind}
            self._send(program.END, end)
        elif state.announced > state.attempt:
            code, message = state.following or (1, "all programs of the job start again")
            self._send(program.END, {"process": -1, "code": code, "message": message, "kind": FAILED})

    @abstractmethod
    def _step_connections(self) -> None:
        """Handles messages of other launchers, and what is due."""

    @abstractmethod
    def report(self, message: Message) -> None:
        """Sends a message to launcher 0; no further attempt starts in this container if that fails."""

    @abstractmethod
    def report_if_connected(self, message: Message) -> None:
        """Sends a message to launcher 0 if there is a connection."""

    def _send_heartbeat(self, now: float) -> None:
        """Sends a heartbeat. `now` is monotonic."""
        self.report_if_connected((messages.HEARTBEAT, {}))

    def _hosts(self) -> List[str]:
        """The hosts of all processes if this launcher knows them; otherwise empty."""
        return []

    def close(self) -> None:
        """Closes all connections."""
        self.program.close()
        self._all.close()

    def _send(self, kind: str, values: Any) -> None:
        if kind not in self._sent:
            self._sent[kind] = values
            self.program.send((kind, values))

    def _handle_of_program(self, kind: str, values: Any) -> None:
        attempt = {"attempt": self.state.attempt}
        if kind == messages.HELLO:
            self._program_hello = {"heartbeat_seconds": values.get("heartbeat_seconds")}
            self._program_hello.update({name: values.get(name) for name in ("configuration", "versions")})
            self._sent = {}
            self.report_if_connected((messages.JOINED, {**attempt, **self._program_hello}))
        elif kind == program.STATE:
            self.report_if_connected((messages.PROGRESS, {**attempt, "state": values}))
        elif kind == messages.ASKED:
            self.was_asked(str(values.get("by", ""))[:40])
        elif kind == FAILED:
            code, line = values.get("code"), values.get("message")
            if type(code) is int and isinstance(line, str):
                how = STALLED if values.get("kind") == STALLED else FAILED
                self.fail(code, time.time(), line, how)

    def _notice_silence(self, now: float) -> None:
        """Reports a program that is connected and silent: it is frozen, or one thread keeps all others from running."""
        silent = now - self.program.received_at
        has_met = self.program.is_connected and program.MET in self._sent
        if has_met and not self.is_silent and silent > self.heartbeat_seconds:
            self.is_silent = True
            self.fail(KILLED, time.time(), f"silent for {silent:.0f} s: it hangs, or a signal has stopped it", LOST)
