"""Launcher 0: receives the messages of all launchers of the job, and sends the state of their round to all."""

import logging
import secrets
import socket
import time
from pathlib import Path
from typing import List, Mapping, Optional, Set

from tpujob_contract import ports, shared_secret
from tpujob_contract.connections import open_files
from tpujob_contract.environment import SECRET, DistributedProcess
from tpujob_contract.process_ids import process_name
from tpujob_contract.reports import in_place
from tpujob_launcher.peers import messages
from tpujob_launcher.peers.attempt import CONFIGURATION_ERROR, Phase
from tpujob_launcher.peers.line_server import Line, LineServer
from tpujob_launcher.peers.messages import Message
from tpujob_launcher.peers.peers import SILENT, Peers
from tpujob_launcher.peers.program import STRAGGLER
from tpujob_launcher.peers.round import Round
from tpujob_launcher.peers.timing import FINISHED_SECONDS

logger = logging.getLogger(__name__)

DELIVERY_SECONDS = 2.0
"""Time for the others to read the last messages, at the end."""
MANY, PAUSE_SECONDS = 64, 0.05
"""With more launchers than this, the messages of that time are handled together."""
LOG_SECONDS = 1.0
HOST_CHARACTERS = 253
"""Of a DNS name."""


class Server(Peers):
    """All launchers of a job, as launcher 0 sees them: its connections, and the round that they report to."""

    def __init__(self, process: DistributedProcess, port: int, folder: Optional[Path] = None) -> None:
        """Listens on the port.

        Raises:
            OSError: It cannot listen on the port.
            TooFewFiles: The job has more launchers than this process may have connections.
        """
        open_files.allow(process.num_processes, each=1)
        listener = ports.listener(ports.bind_host(process.coordinator.rpartition(":")[0]), port)
        super().__init__(process, folder)
        self.lines = LineServer(
            listener, self._selector, process.num_processes, on_line=self._receive, on_loss=self._lose
        )
        self.round = Round(
            [socket.gethostname(), *[""] * (process.num_processes - 1)],
            hosts_per_slice=process.hosts_per_slice,
            limit=process.in_place,
            startup_seconds=process.startup_seconds,
            replaces_pods=self.replaces_pods,
            is_replacement=bool(process.pods_before),
            nonce=secrets.token_hex(4),
            account={"lead": process.pod} if process.pod else {},
        )
        self._published = self.round.state
        hello = messages.hello(process)[1]
        self._expected_hello = {name: value for name, value in hello.items() if name not in ("process", "secret")}
        self._logged = (0, 0.0)
        self._warned: Set[str] = set()
        """Reasons for dropped connections, and for launchers of another release, that have been logged."""

    def close(self) -> None:
        """Sends a goodbye, and closes all connections."""
        self.lines.send_all(messages.to_line((messages.BYE, {})))
        self.lines.deliver(DELIVERY_SECONDS)
        self.lines.close()
        super().close()

    def seconds(self) -> Optional[float]:
        """Time until something is due."""
        return min(self.round.seconds(time.monotonic()), super().seconds() or 0.0)

    def report(self, message: Message) -> None:
        """Handles a message about this launcher's own program."""
        self.round.receive(0, message, time.monotonic(), time.time())
        self._publish()

    report_if_connected = report

    def _step_connections(self) -> None:
        """Handles received messages, and what is due."""
        self.lines.poll(0)
        now = time.monotonic()
        self._log_who_is_here(now)
        for name in self.round.newly_silent(now):
            logger.warning("%s", SILENT.format(name, self.limit_seconds))
        self.round.tick(now, time.time())
        for process in self.round.given_up():
            if self.replaces_pods and process in self.lines.members:
                # Now its pod counts as gone, and the others wait for the next one.
                self.lines.drop(self.lines.members[process])
        if (finished := self.round.early_finish(now)) is not None:
            words = "process %d finished %.0f s ago, and others go on; if they wait for it, they wait forever"
            logger.warning(words, finished, FINISHED_SECONDS)
        self._publish()
        if len(self.lines.members) > MANY and self.round.is_settled:
            # Handles the messages of that time together: a turn for each would cost more than the messages.
            time.sleep(PAUSE_SECONDS)

    def _publish(self) -> None:
        """Sends the state of the round to all if it has changed."""
        state, before = self.round.state, self._published
        if state == before:
            return
        if state.get("asked", "") not in ("", before.get("asked")):
            logger.info("asked to stop: %s", state["asked"])
        self._published = state
        self.state.update(state)
        self.lines.send_all(messages.to_line((messages.ROUND, state)))

    def _send_heartbeat(self, now: float) -> None:
        """Sends all others a heartbeat, and the own program the processes that are behind."""
        self.round.heartbeat_seconds, self.round.limit_seconds = self.heartbeat_seconds, self.limit_seconds
        self.lines.send_all(messages.to_line((messages.HEARTBEAT, {})))
        if self.program.is_connected:
            message = self.round.stragglers(now)
            if message != self._sent.get(STRAGGLER, ""):
                self._sent[STRAGGLER] = message
                self.program.send((STRAGGLER, {"message": message}))

    def _hosts(self) -> List[str]:
        return self.round.hosts

    def _log_who_is_here(self, now: float) -> None:
        joined = self.round.joined
        if joined not in (0, self._logged[0]) and now >= self._logged[1] + LOG_SECONDS:
            self._logged = (joined, now)
            logger.info("Waiting for processes: %d of %d are here", joined, self.process.num_processes)

    def _receive(self, line: Line, text: bytes) -> Optional[str]:
        """Handles a line of a connection: a hello first, then reports of that launcher; returns why to drop it."""
        message = messages.parse(text)
        if line.member is not None:
            is_known = message is not None and self.round.receive(line.member, message, time.monotonic(), time.time())
            return None if is_known else "no message of a launcher of this job"
        if message is not None and not shared_secret.is_known(self.process.secret, message[1].get("secret")):
            return f"no message with this job's secret ({SECRET})"
        kind, values = message or ("", {})
        number, version = values.get("process"), values.get("version")
        if kind == messages.HELLO and type(number) is int and 0 < number < self.process.num_processes:
            others = {name for name, value in self._expected_hello.items() if values.get(name) != value}
            if not others:
                self._welcome(line, number, values)
                return None
            if others == {"version"} and type(version) is int:
                self._turn_away(line, number, version, values)
                return ""
        return "no message of a launcher of this job"

    def _lose(self, line: Line, why: str) -> None:
        """Handles the loss of a launcher, or of an unknown client, which is logged once for each reason."""
        if why:
            self._warn_once("dropped a connection on the launcher's port: %s", why)
        if line.member is not None:
            self.round.disconnected(line.member, time.monotonic(), time.time(), is_silent=line.is_silent)

    def _warn_once(self, words: str, why: str) -> None:
        if why not in self._warned:
            self._warned.add(why)
            logger.warning(words, why)

    def _welcome(self, line: Line, number: int, values: Mapping[str, object]) -> None:
        """Tells the launcher of a container the state; it replaces the one of an earlier container."""
        self.lines.identify(line, number)
        at = messages.parse_standpoint(values)
        lost_at = time.time() if at.lost_at is None else at.lost_at
        host = messages.printable(str(values.get("host", "")), HOST_CHARACTERS)
        # An earlier launcher 0 may have counted more than this one.
        self.round.account = in_place.larger(self.round.account, at.account)
        self.round.connected(number, time.monotonic(), host=host, at=at.attempt, lost_at=lost_at)
        welcome = {"welcome": True} if self.replaces_pods else {}
        self.lines.send(line, messages.to_line((messages.ROUND, {**self.round.state, **welcome})))

    def _turn_away(self, line: Line, number: int, version: int, values: Mapping[str, object]) -> None:
        """Refuses a launcher with another version of the messages, and reports that to all programs.

        Between two attempts there is no further one, since it cannot take part.
        """
        is_replacement = values.get("at", 0) is None
        if is_replacement:
            self.round.expect_other_images()
        host = messages.printable(str(values.get("host", "")), HOST_CHARACTERS)
        words = messages.another_release(process_name(number, host), version)
        self._warn_once("%s", words)
        self.round.refuse(words)
        if self.replaces_pods and self.round.phase is not Phase.RUNNING:
            self.round.close(words)
        attempt = messages.attempt_in({"attempt": values.get("at", 0)}) or 0
        refused = {"error": CONFIGURATION_ERROR, "message": words}
        state = {"attempt": attempt, "running": True, "refused": refused, "over": words}
        self.lines.send(line, messages.to_line((messages.ROUND, state)))
