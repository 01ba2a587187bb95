"""Launcher 0: hears all launchers of the job, and tells all what it decides."""

from __future__ import annotations

import logging
import time
from typing import List, Optional

from tpujob_contract.connections import open_files, ports
from tpujob_contract.connections.line_server import Line, LineServer
from tpujob_contract.environment import DistributedProcess
from tpujob_launcher.child.supervisor import FINISHED_SECONDS
from tpujob_launcher.peers import messages
from tpujob_launcher.peers.decisions import Decisions
from tpujob_launcher.peers.messages import ENDED, FINISHED, HELLO, OVER, READY, STOPPING, WELCOME, Message
from tpujob_launcher.peers.peers import Peers

logger = logging.getLogger(__name__)

_FOREVER = "if they wait for it, they wait forever"


class Server(Peers, LineServer):
    """All launchers of a job, seen from launcher 0."""

    def __init__(self, process: DistributedProcess, limit: int, port: int) -> None:
        """Listens.

        Args:
            process: This launcher's.
            limit: How often all may start again in these containers.
            port: Where to listen.

        Raises:
            OSError: The port cannot be had.
            TooFewFiles: There are more launchers than this process may have connections.
        """
        open_files.allow(process.num_processes, each=1)
        Peers.__init__(self, process)
        listener = ports.listen(process.coordinator.rpartition(":")[0], port)
        LineServer.__init__(self, listener, self._selector, process.num_processes)
        self._process = process
        self._decisions = Decisions(
            process.num_processes,
            limit,
            wait_seconds=process.startup_seconds if self.replaces_pods else None,
            is_newcomer=bool(process.pods_before),
        )
        self._said: Optional[Message] = None
        """The last decision."""
        self._expected_hello = {name: value for name, value in messages.hello(process)[1].items() if name != "process"}
        self._has_warned = False

    def close(self) -> None:
        """Closes all connections."""
        LineServer.close(self)

    def seconds(self) -> Optional[float]:
        """Until something is due; None: nothing is."""
        return self._decisions.seconds(time.monotonic())

    def step(self) -> None:
        """Handles what has come, and what is due."""
        self.poll(0)
        now = time.monotonic()
        self._tell(self._decisions.look(now))
        if (finished := self._decisions.early_finish(now)) is not None:
            logger.warning("process %d finished %.0f s ago, and others go on; %s", finished, FINISHED_SECONDS, _FOREVER)

    def say(self, message: Message) -> None:
        """What happens to this launcher's own program."""
        self._hear(0, message)

    def hear(self, line: Line, text: bytes) -> Optional[str]:
        """A hello first, then what happens to the program of that launcher."""
        message = messages.parse(text)
        return None if message is not None and self._take(line, message) else "no message of a launcher of this job"

    def gone(self, line: Line, why: str) -> None:
        """A launcher is lost, or a stranger has gone, which is logged once."""
        if why and not self._has_warned:
            self._has_warned = True
            logger.warning("dropped a connection on the launcher's port: %s", why)
        if line.member is not None:
            self._tell(self._decisions.gone(line.member, time.monotonic(), time.time()))

    def _take(self, line: Line, message: Message) -> bool:
        """Whether the message is one that may come on this line."""
        kind, values = message
        if line.member is not None:
            return self._hear(line.member, message)
        number = values.get("process")
        if kind != HELLO or type(number) is not int or not 0 < number < self._process.num_processes:
            return False
        if {name: values.get(name) for name in self._expected_hello} != self._expected_hello:
            return False
        self.identify(line, number)  # the launcher of a new container takes the place of the old one's
        at = messages.parse_standpoint(values)
        self.history.take(at.account)
        decided = self._decisions.arrived(
            number, time.monotonic(), at=at.attempt, lost_at=time.time() if at.lost_at is None else at.lost_at
        )
        if self.replaces_pods:
            self._name_containers()
            self.send(line, messages.to_line(self._welcome()))
        if self.replaces_pods and not decided and self._said is not None and self._said[0] == OVER:
            self.send(line, messages.to_line(self._said))
        self._tell(decided)
        return True

    def _name_containers(self) -> None:
        """After this launcher's pod, once nobody has come that knows an earlier one."""
        if not self._decisions.knows_nothing and "lead" not in self.history.account:
            self.history.lead(self._process.pod)

    def _welcome(self) -> Message:
        decisions = self._decisions
        attempt = None if decisions.knows_nothing else decisions.attempt
        return WELCOME, {"attempt": attempt, "running": decisions.is_running, "account": self.history.account}

    def _hear(self, process: int, message: Message) -> bool:
        kind, values = message
        now = time.monotonic()
        attempt = messages.attempt_in(values)
        if kind == FINISHED:
            self._tell(self._decisions.finished(process, now))
        elif kind == STOPPING:
            at = values.get("at")
            self._tell(self._decisions.stopping(process, now, at if isinstance(at, float) else time.time()))
        elif kind == READY and attempt is not None:
            self._tell(self._decisions.ready(process, attempt, now))
        elif kind == ENDED and attempt is not None:
            end = messages.parse_end(process, values)
            if end is None:
                return False
            self._tell(self._decisions.ended(end, attempt, now))
        else:
            return False
        return True

    def _tell(self, decided: List[Message]) -> None:
        for message in decided:
            self._said = message
            self.standing.take(message)
            self.send_all(messages.to_line(message))
