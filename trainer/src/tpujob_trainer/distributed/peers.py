"""The other processes of the run, as this one's launcher reports them.

- The launchers of all processes meet, and learn of every end: a frozen interpreter does not block them.
- Over one local socket, this process reports its start, its progress and why it ends; it learns that all have met, and
  which process failed first. `tpujob_launcher.peers.program` has the other end.
- Messages that cannot be parsed are ignored, because a launcher may be of another release.
"""

import contextlib
import dataclasses
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

from tpujob_contract.process_ids import process_name
from tpujob_contract.reports.progress_state import ProgressState
from tpujob_trainer.values import errors

VERSION = 1
BEATS = 5
"""Number of heartbeats within one heartbeat limit."""
ANSWER_SECONDS = 1.5
"""Time for the launchers to report which process failed first."""
READ_BYTES = 1 << 16


@dataclasses.dataclass(frozen=True)
class End:
    """Why the run ends."""

    process: int
    """The first to fail; for a stall, the first to notice it."""
    code: int
    """The exit code with which this process ends because of it."""
    message: str
    """The message that this process leaves."""
    kind: Literal["failed", "lost", "stalled"] = "failed"

    @classmethod
    def parse(cls, values: Any) -> Self:
        """The end in a launcher's message.

        Raises:
            ValueError: it is not one.
        """
        try:
            found = cls(**{field.name: values[field.name] for field in dataclasses.fields(cls)})
        except (TypeError, KeyError) as error:
            raise ValueError("not an end") from error
        if type(found.process) is not int or type(found.code) is not int or not isinstance(found.message, str):
            raise ValueError("not an end")
        return found


@dataclasses.dataclass(frozen=True)
class Membership:
    """What all processes have in common once they have met."""

    nonce: str
    """Eight hexadecimal digits, new each time."""
    hosts: tuple[str, ...]
    """Host name of each process. Process 0 has all; another process has its own and that of process 0, else ""."""


class EndedByAnotherError(errors.TrainerError):
    """Another process failed before all had met."""

    is_shared = True

    def __init__(self, end: End) -> None:
        super().__init__(end.message)
        self.exit_code = end.code  # type: ignore[misc]


class _Lines:
    """The connection to the launcher."""

    def __init__(self, address: str) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.connect(address)
        self._heard = b""
        self._lock = threading.Lock()

    def say(self, kind: str, values: Mapping[str, Any]) -> None:
        """Sends a message. Errors are ignored: if the launcher is gone, this process ends with it."""
        with self._lock, contextlib.suppress(OSError):
            self._sock.sendall(json.dumps({kind: values}).encode() + b"\n")

    def read(self, seconds: float | None) -> list[tuple[str, Mapping[str, Any]]] | None:
        """The messages that arrive within this time (None: no limit); None: the launcher has closed the connection."""
        if not select.select([self._sock], [], [], seconds)[0]:
            return []
        try:
            heard = self._sock.recv(READ_BYTES)
        except OSError:
            heard = b""
        if not heard:
            return None
        *whole, self._heard = (self._heard + heard).split(b"\n")
        found: list[tuple[str, Mapping[str, Any]]] = []
        for line in whole:
            with contextlib.suppress(ValueError, RecursionError):
                said = json.loads(line)
                if isinstance(said, dict):
                    found += [(kind, values) for kind, values in said.items() if isinstance(values, dict)]
        return found

    def close(self) -> None:
        self._sock.close()


class Peers:
    """The other processes of the run. Safe to use from any thread."""

    def __init__(
        self,
        process_id: int,
        hosts: Sequence[str],
        lines: _Lines,
        *,
        heartbeat_seconds: float,
        heard: Sequence[tuple[str, Mapping[str, Any]]] = (),
    ) -> None:
        """Nothing is sent or received before `start`.

        Args:
            process_id: Of this process.
            hosts: The host name of each process; "": unknown. Only process 0 needs all of them.
            lines: The connection to this process's launcher.
            heartbeat_seconds: Silence after which a process counts as lost.
            heard: The launcher's messages since all processes met.
        """
        self.process_id = process_id
        self._heard = heard
        self.heartbeat_seconds = heartbeat_seconds
        self.asked: str | None = None
        """The first request to stop, as in "SIGTERM at process 1 on host h"; None: none is known."""
        self._hosts = list(hosts)
        self._lines = lines
        self._end: End | None = None
        self._decided = threading.Event()
        self._straggler = ""
        self._on_failure: Callable[[End], None] = lambda end: None
        self._progress_state: Callable[[], ProgressState] = ProgressState

    @property
    def is_lead(self) -> bool:
        """Whether this is process 0."""
        return self.process_id == 0

    def name(self, process_id: int) -> str:
        """The name of a process for messages: "process 3 on host h"."""
        return process_name(process_id, self._hosts[process_id] if 0 <= process_id < len(self._hosts) else "")

    def start(
        self,
        *,
        on_failure: Callable[[End], None],
        progress_state: Callable[[], ProgressState] = ProgressState,
    ) -> None:
        """Starts to listen and to send.

        Args:
            on_failure: Called once, in a thread, when the run is over for a reason that is not this process's own.
            progress_state: Returns the progress of this process.
        """
        self._on_failure, self._progress_state = on_failure, progress_state
        threading.Thread(target=self._run, name="peers", daemon=True).start()

    def fail(self, end: End) -> End:
        """Reports why this process ends; returns the end that came first, which may be another process's."""
        self._lines.say("failed", {"code": end.code, "message": end.message, "kind": end.kind})
        self._decided.wait(ANSWER_SECONDS)
        return self._end or end

    def wait(self, limit_seconds: float) -> End | None:
        """Waits until it is known why the run is over; returns that. None: it is not known within the limit."""
        self._decided.wait(limit_seconds)
        return self._end

    def stragglers(self) -> str | None:
        """The process behind the others, and where, while none makes progress; None: all do, or none stands out.

        Only process 0 knows it.
        """
        return self._straggler or None

    def announce_stop(self, why: str) -> None:
        """Announces that this process is asked to stop, for the others' logs; the step carries the request itself."""
        self._lines.say("asked", {"by": why})

    def disconnect(self) -> None:
        """Sends a goodbye: from now on, silence does not count as a loss."""
        self._lines.say("bye", {})

    def _run(self) -> None:
        interval = self.heartbeat_seconds / BEATS
        next_beat = 0.0
        for kind, values in self._heard:
            self._hear(kind, values)
        while True:
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + interval
                self._lines.say("state", dataclasses.asdict(self._progress_state()))
            said = self._lines.read(max(next_beat - time.monotonic(), 0))
            if said is None:
                self._lines.close()
                return
            for kind, values in said:
                self._hear(kind, values)

    def _hear(self, kind: str, values: Mapping[str, Any]) -> None:
        if kind == "asked":
            self.asked = self.asked or str(values.get("who", "")) or None
        elif kind == "straggler":
            self._straggler = str(values.get("message", ""))
        elif kind == "end" and self._end is None:
            with contextlib.suppress(ValueError):
                self._end = End.parse(values)
                self._decided.set()
                if self._end.process != self.process_id or self._end.kind == "lost":
                    # Not in this thread, which has to receive more messages.
                    threading.Thread(target=self._on_failure, args=(self._end,), name="failure", daemon=True).start()


def meet(
    process_id: int,
    num_processes: int,
    address: str,
    *,
    configuration: str,
    versions: Mapping[str, str],
    heartbeat_seconds: float,
) -> tuple[Membership, Peers]:
    """Waits for all other processes; returns the membership and the connection to them.

    Args:
        process_id: Of this process.
        num_processes: Of the run.
        address: Of the launcher's socket.
        configuration: Hash of the configuration, the same in all processes.
        versions: Of what is installed, likewise.
        heartbeat_seconds: Silence after which a process counts as lost.

    Raises:
        PeersMissingError: a process did not arrive; all present ones end with the same message.
        ConfigurationError: a process runs another program; likewise.
        EndedByAnotherError: another process has failed meanwhile.
    """
    try:
        lines = _Lines(address)
    except OSError as error:
        raise errors.TrainerError(f"the launcher's socket {address} cannot be reached: {error}") from error
    about = {"configuration": configuration, "versions": versions, "heartbeat_seconds": heartbeat_seconds}
    lines.say("hello", {"version": VERSION, **about})
    while (said := lines.read(None)) is not None:
        for number, (kind, values) in enumerate(said, 1):
            if kind in ("refused", "end"):
                lines.close()
            if kind == "refused":
                raise errors.from_dict({"error": str(values["error"]), "message": str(values["message"])})
            if kind == "end":
                raise EndedByAnotherError(End.parse(values))
            if kind == "met":
                membership = _membership(values, process_id, num_processes)
                heard = said[number:]
                found = Peers(
                    process_id, membership.hosts, lines, heartbeat_seconds=heartbeat_seconds, heard=heard
                )  # fmt: skip
                return membership, found
    raise errors.TrainerError("the launcher closed its socket before all processes had met; its log has the cause")


def _membership(values: Mapping[str, Any], process_id: int, num_processes: int) -> Membership:
    hosts = [str(host) for host in values.get("hosts") or ()]
    if len(hosts) != num_processes:
        hosts = [""] * num_processes
        hosts[0], hosts[process_id] = str(values.get("lead", "")), socket.gethostname()
    return Membership(str(values.get("nonce", "")), tuple(hosts))
