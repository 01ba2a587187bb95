"""Launcher 0: receives the messages of all launchers of the job, and sends its decisions to all."""

from __future__ import annotations

import logging
import secrets
import socket
import time
from pathlib import Path
from typing import Any, List, Mapping, Optional, Set

from tpujob_contract.connections import open_files, ports, shared_secret
from tpujob_contract.connections.line_server import Line, LineServer
from tpujob_contract.environment import SECRET, DistributedProcess
from tpujob_contract.process_ids import process_name
from tpujob_launcher.child.ending import FINISHED_SECONDS
from tpujob_launcher.peers import messages
from tpujob_launcher.peers.decisions import Decisions
from tpujob_launcher.peers.messages import Message
from tpujob_launcher.peers.peers import SILENT, STRAGGLER, Peers
from tpujob_launcher.peers.watch import CONFIGURATION_ERROR, Watch

logger = logging.getLogger(__name__)

DELIVERY_SECONDS = 2.0
"""Time for the others to read the last messages, at the end."""
MANY, PAUSE_SECONDS = 64, 0.05
"""With more launchers than this, the messages of that time are handled together."""
LOG_SECONDS = 1.0
HOST_CHARACTERS = 253
"""Of a DNS name."""


class Server(Peers, LineServer):
    """All launchers of a job, as launcher 0 sees them."""

    def __init__(self, process: DistributedProcess, port: int, folder: Optional[Path] = None) -> None:
        """Listens on the port.

        Raises:
            OSError: It cannot listen on the port.
            TooFewFiles: The job has more launchers than this process may have connections.
        """
        open_files.allow(process.num_processes, each=1)
        listener = ports.listener(ports.bind_host(process.coordinator.rpartition(":")[0]), port)
        Peers.__init__(self, process, folder)
        LineServer.__init__(self, listener, self._selector, process.num_processes)
        self._decisions = Decisions(
            process.num_processes,
            process.in_place,
            wait_seconds=process.startup_seconds if self.replaces_pods else None,
            is_newcomer=bool(process.pods_before),
        )
        self._last_decision: Optional[Message] = None
        """The last decision."""
        hello = messages.hello(process)[1]
        self._expected_hello = {name: value for name, value in hello.items() if name not in ("process", "secret")}
        self._names = [""] * process.num_processes
        """The host of each process; empty while it is not known."""
        self._names[0] = socket.gethostname()
        self._beating: Set[int] = set()
        """Processes whose launchers send signs of life."""
        self._watch = self._watch_of(0)
        self._logged = (-1, 0.0)
        self._warned: Set[str] = set()
        """Reasons for dropped connections that have been logged."""
        self._of_another_release: Set[int] = set()
        """Processes whose launchers use another version of the messages."""

    def close(self) -> None:
        """Sends a goodbye, and closes all connections."""
        self.send_all(messages.to_line((messages.BYE, {})))
        self.deliver(DELIVERY_SECONDS)
        LineServer.close(self)
        Peers.close(self)

    def seconds(self) -> Optional[float]:
        """Time until something is due."""
        now = time.monotonic()
        due = (self._decisions.seconds(now), self._watch.seconds(now), Peers.seconds(self))
        return min(each for each in due if each is not None)

    def _step_connections(self) -> None:
        """Handles received messages, and what is due."""
        self.poll(0)
        now = time.monotonic()
        self._say_who_is_here(now)
        for name in self._watch.silent(now):
            logger.warning("%s", SILENT.format(name, self.limit_seconds))
        found = self._watch.look(now, time.time())
        self._announce(found)
        for process in self._watch.given_up():
            if self.replaces_pods and process in self.members:
                self.drop(self.members[process])  # now its pod counts as gone, and the others wait for the next one
        for end in filter(None, [messages.end_in(values) for kind, values in found if kind == messages.END]):
            if self.replaces_pods:
                self._announce(self._decisions.lost(end.process, now, end.at))
            else:
                self._announce(self._decisions.ended(end, self._watch.attempt, now))
        self._announce(self._decisions.look(now))
        if (finished := self._decisions.early_finish(now)) is not None:
            words = "process %d finished %.0f s ago, and others go on; if they wait for it, they wait forever"
            logger.warning(words, finished, FINISHED_SECONDS)
        if len(self.members) > MANY and self._decisions.seconds(now) is None:
            # Handles the messages of that time together: a turn for each would cost more than the messages.
            time.sleep(PAUSE_SECONDS)

    def report(self, message: Message) -> None:
        """Handles a message about this launcher's own program."""
        self._handle(0, message)

    report_if_connected = report

    def _beat(self, now: float) -> None:
        """Sends all others a sign of life, and the own program the processes that are behind."""
        self._watch.heartbeat_seconds, self._watch.limit_seconds = self.heartbeat_seconds, self.limit_seconds
        self.send_all(messages.to_line((messages.BEAT, {})))
        if self.program.speaks:
            message = self._watch.stragglers(now)
            if message != self._sent.get(STRAGGLER, ""):
                self._sent[STRAGGLER] = message
                self.program.send((STRAGGLER, {"message": message}))

    def _hosts(self) -> List[str]:
        return self._names

    def _watch_of(self, attempt: int) -> Watch:
        process = self.process
        positions = [
            f"slice {i // process.hosts_per_slice}, host {i % process.hosts_per_slice}"
            for i in range(process.num_processes)
        ]
        watch = Watch(attempt, self._names, positions, process.startup_seconds)
        if attempt:
            self._expect_other_images(watch)
        return watch

    def _expect_other_images(self, watch: Watch) -> None:
        """The replacement of a lost pod may have a newer image, which all have once all pods are replaced."""
        watch.is_difference_final = not self.replaces_pods

    def _say_who_is_here(self, now: float) -> None:
        here = self._watch.here
        if self._watch.has_met or here in (0, self._logged[0]) or now < self._logged[1] + LOG_SECONDS:
            return
        self._logged = (here, now)
        logger.info("Waiting for processes: %d of %d are here", here, self.process.num_processes)

    def hear(self, line: Line, text: bytes) -> Optional[str]:
        """Handles a line of a connection: a hello first, then messages about the program of that launcher."""
        message = messages.parse(text)
        if message is not None and line.member is None:
            if not shared_secret.is_known(self.process.secret, message[1].get("secret")):
                return f"no message with this job's secret ({SECRET})"
            if self._is_of_another_release(message):
                self._turn_away(line, message[1])
                return ""
        return None if message is not None and self._take(line, message) else "no message of a launcher of this job"

    def gone(self, line: Line, why: str) -> None:
        """Handles the loss of a launcher, or of an unknown client, which is logged once for each reason."""
        if why and why not in self._warned:
            self._warned.add(why)
            logger.warning("dropped a connection on the launcher's port: %s", why)
        if line.member is not None:
            if not line.is_silent:  # otherwise it has the rest of its heartbeat limit to return
                self._watch.gone(line.member, time.monotonic())
            self._announce(self._decisions.gone(line.member, time.monotonic(), time.time()))

    def _other_than_expected(self, message: Message) -> Optional[Set[str]]:
        """The fields in which a hello differs from this job's; None: it is not the hello of one of its processes."""
        kind, values = message
        number = values.get("process")
        if kind != messages.HELLO or type(number) is not int or not 0 < number < self.process.num_processes:
            return None
        return {name for name, value in self._expected_hello.items() if values.get(name) != value}

    def _is_of_another_release(self, message: Message) -> bool:
        version = message[1].get("version")
        return type(version) is int and self._other_than_expected(message) == {"version"}

    def _turn_away(self, line: Line, values: Mapping[str, Any]) -> None:
        """Refuses a launcher with another version of the messages, and reports that to all programs.

        Between two attempts there is no further one, since it cannot take part.
        """
        if "at" in values and values["at"] is None:
            self._expect_other_images(self._watch)
        number, host = values["process"], messages.printable(str(values.get("host", "")), HOST_CHARACTERS)
        words = messages.another_release(process_name(number, host), values["version"])
        if number not in self._of_another_release:
            self._of_another_release.add(number)
            logger.warning("%s", words)
            self._announce(self._watch.refuse(words))
        if self.replaces_pods and not self._decisions.is_running:
            self._announce(self._decisions.close(words))
        attempt = messages.attempt_in({"attempt": values.get("at", 0)}) or 0
        refused = messages.REFUSED, {"attempt": attempt, "error": CONFIGURATION_ERROR, "message": words}
        self.send(line, messages.to_line(refused) + messages.to_line((messages.OVER, {"reason": words})))

    def _take(self, line: Line, message: Message) -> bool:
        """Handles a message; False: it may not come on this line."""
        _, values = message
        if line.member is not None:
            return self._handle(line.member, message)
        if self._other_than_expected(message) != set():
            return False
        number = values["process"]
        self.identify(line, number)  # the launcher of a new container replaces the earlier one
        self._names[number] = messages.printable(str(values.get("host", "")), HOST_CHARACTERS)
        # A launcher of an earlier release sends no host and no signs of life.
        (self._beating.add if "host" in values else self._beating.discard)(number)
        self._heard(number, time.monotonic())
        at = messages.parse_standpoint(values)
        self.history.take(at.account)
        if at.attempt is None:  # if the pod before it never connected, it joins the first attempt
            self._expect_other_images(self._watch)
        decided = self._decisions.arrived(
            number, time.monotonic(), at=at.attempt, lost_at=time.time() if at.lost_at is None else at.lost_at
        )
        if self.replaces_pods:
            is_named = self._name_containers()
            welcome = messages.to_line(self._welcome())
            for one in list(self.members.values()) if is_named else [line]:
                self.send(one, welcome)
        if not decided and self._last_decision is not None and self._last_decision[0] == messages.OVER:
            self.send(line, messages.to_line(self._last_decision))
        for each in self._watch.announcements:
            self.send(line, messages.to_line(each))
        self._announce(decided)
        return True

    def _name_containers(self) -> bool:
        """Names the containers after this launcher's pod if no launcher knows an earlier name; whether it did."""
        if self._decisions.knows_nothing or "lead" in self.history.account:
            return False
        self.history.lead(self.process.pod)
        return True

    def _welcome(self) -> Message:
        decisions = self._decisions
        attempt = None if decisions.knows_nothing else decisions.attempt
        return messages.WELCOME, {"attempt": attempt, "running": decisions.is_running, "account": self.history.account}

    def _heard(self, process: int, now: float) -> None:
        if process in self._beating:
            self._watch.heard(process, now)

    def _handle(self, process: int, message: Message) -> bool:
        kind, values = message
        now = time.monotonic()
        attempt = messages.attempt_in(values)
        self._heard(process, now)
        if kind == messages.BYE:
            self._watch.signed_off(process)
        if kind in (messages.BEAT, messages.BYE):
            return True
        if kind in (messages.STATE, messages.HERE, messages.ASKED):
            if attempt == self._watch.attempt:
                self._handle_of_program(process, message, now)
            return attempt is not None
        if kind == messages.FINISHED:
            self._watch.signed_off(process)
            self._announce(self._decisions.finished(process, now))
        elif kind == messages.STOPPING:
            self._watch.signed_off(process)
            at = values.get("at")
            self._announce(self._decisions.stopping(process, now, at if isinstance(at, float) else time.time()))
        elif kind == messages.READY and attempt is not None:
            self._announce(self._decisions.ready(process, attempt, now))
        elif kind == messages.ENDED and attempt is not None:
            end = messages.parse_end(process, values)
            if end is None:
                return False
            if attempt == self._watch.attempt:
                self._announce(self._watch.ended(end, now))
            self._announce(self._decisions.ended(end, attempt, now))
        else:
            return False
        return True

    def _handle_of_program(self, process: int, message: Message, now: float) -> None:
        kind, values = message
        if kind == messages.STATE and isinstance(values.get("state"), dict):
            self._watch.progressed(process, values["state"], now)
        elif kind == messages.HERE:
            joined = self._watch.joined(process, values, now, secrets.token_hex(4))
            self._announce(joined)
            differ = [values for kind, values in joined if kind == messages.REFUSED]
            if differ and not self._watch.is_difference_final:
                self._announce(self._decisions.close(str(differ[0]["message"])))
        elif kind == messages.ASKED:
            asked = self._watch.was_asked(process, messages.printable(str(values.get("by", ""))))
            if asked:
                logger.info("asked to stop: %s", self._watch.asked)
            self._announce(asked)

    def _announce(self, decided: List[Message]) -> None:
        for message in decided:
            if message[0] in (messages.RESTART, messages.OVER):
                self._last_decision = message
            if message[0] == messages.GO:
                self._last_decision = message
                self._watch = self._watch_of(self._decisions.attempt)
                for member in self.members:
                    self._heard(member, time.monotonic())
            self.standing.take(message)
            self.send_all(messages.to_line(message))
