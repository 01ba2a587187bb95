"""The other launchers of a job, as the supervision of a program sees them: what launcher 0 and the others share."""

from __future__ import annotations

import selectors
from abc import ABC, abstractmethod
from typing import Optional

from tpujob_contract.environment import DistributedProcess
from tpujob_launcher.peers.history import History
from tpujob_launcher.peers.messages import ENDED, Message, printable
from tpujob_launcher.peers.standing import Standing


class Peers(ABC):
    """The other launchers. No call blocks for long, and none is for another thread."""

    def __init__(self, process: DistributedProcess) -> None:
        """Knows nobody yet. `process`: this launcher's."""
        self.replaces_pods = process.pods_before is not None
        """Whether Kubernetes replaces a lost pod, and the others wait for it."""
        is_newcomer = bool(process.pods_before)
        self.standing = Standing(is_newcomer=is_newcomer)
        self.history = History(process.process_id)
        if process.process_id == 0 and process.pod and not is_newcomer:
            self.history.lead(process.pod)
        self.was_stopped = False
        """Whether this container was asked to stop between two attempts."""
        self.welcomes = 0
        """How often this launcher has come to a launcher 0."""
        self._selector = selectors.DefaultSelector()

    @property
    def has_to_end(self) -> bool:
        """Whether this launcher's program has to end, since another one failed."""
        return self.standing.has_to_end

    def fileno(self) -> int:
        """For `select`: readable when there is something to do."""
        return int(self._selector.fileno())

    def fail(self, code: int, at: float, line: str) -> None:
        """The program has failed, or has ended without success: exit code, Unix time, cause."""
        # A longer line than launcher 0 takes would cost the connection.
        self.say((ENDED, {"attempt": self.standing.attempt, "code": code, "at": at, "line": printable(line)}))

    def start(self) -> None:  # noqa: B027 - launcher 0 has nothing to start
        """Called when the program runs."""

    def seconds(self) -> Optional[float]:
        """Until something is due; None: nothing is."""
        return None

    @abstractmethod
    def step(self) -> None:
        """Handles what has come, and what is due."""

    @abstractmethod
    def say(self, message: Message) -> None:
        """Tells launcher 0."""

    @abstractmethod
    def close(self) -> None:
        """Closes all connections."""
