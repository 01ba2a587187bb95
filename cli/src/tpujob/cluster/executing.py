"""A command on several hosts of a job at once: the lines that it writes, and its exit codes."""

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tpujob.cluster.client import Cluster
from tpujob.output.errors import CommandError
from tpujob_contract.typed import object_in

STDOUT, STDERR, ERROR = 1, 2, 3
"""Channels of the kubelet's protocol (kubernetes/kubernetes:pkg/kubelet/cri/streaming/remotecommand/websocket.go)."""
POLL_SECONDS = 1
"""How long one poll waits for more output."""
FAILED = 1


class Stream(Protocol):
    """A connection to a program in a container; kubernetes' WSClient implements it."""

    def is_open(self) -> bool:
        """Whether more data may arrive."""

    def update(self, timeout: float) -> None:
        """Receives data that arrives within this many seconds."""

    def read_channel(self, channel: int, timeout: float = 0) -> bytes:
        """The data that has arrived on a channel."""


@dataclass(frozen=True)
class Line:
    """One line of output."""

    pod: int
    """Index of the pod in the list given to `run`."""
    text: str
    is_error: bool
    """Whether it was written to stderr."""


@dataclass(frozen=True)
class Ended:
    """The end of the command in a pod."""

    pod: int
    exit_code: int
    """Of the command; 1 if it is unknown, for instance because the connection broke."""
    message: str = ""
    """Why the exit code is unknown."""


def run(cluster: Cluster, pods: Sequence[Mapping[str, Any]], command: Sequence[str]) -> Iterator[Line | Ended]:
    """Runs a command in the main container of each pod; yields lines as they arrive, and an `Ended` for each pod.

    Args:
        cluster: where the pods are.
        pods: running pods.
        command: program and arguments; no shell.
    """
    found: queue.SimpleQueue[Line | Ended] = queue.SimpleQueue()

    def follow(number: int, pod: Mapping[str, Any]) -> None:
        try:
            with cluster.execute(pod["metadata"]["name"], pod["spec"]["containers"][0]["name"], command) as stream:
                for is_error, text in _lines(stream):
                    found.put(Line(number, text, is_error))
                found.put(Ended(number, *ending(stream.read_channel(ERROR))))
        except CommandError as error:
            found.put(Ended(number, FAILED, str(error)))

    for number, pod in enumerate(pods):
        threading.Thread(target=follow, args=(number, pod), daemon=True).start()
    left = len(pods)
    while left:
        each = found.get()
        left -= isinstance(each, Ended)
        yield each


def ending(status: bytes) -> tuple[int, str]:
    """The exit code and a message about it, from the Status that the kubelet sends at the end."""
    found = object_in(status)
    if not found:
        return FAILED, "the connection ended before the command did"
    if found.get("status") == "Success":
        return 0, ""
    if found.get("reason") == "NonZeroExitCode":
        return int(found["details"]["causes"][0]["message"]), ""
    return FAILED, str(found.get("message", ""))


def _lines(stream: Stream) -> Iterator[tuple[bool, str]]:
    """Lines, each with whether it is from stderr, until the stream is closed."""
    rest = {STDOUT: b"", STDERR: b""}
    is_open = True
    while is_open:
        stream.update(timeout=POLL_SECONDS)
        # Checked before the reads below, so that they get all data from before the end.
        is_open = stream.is_open()
        for channel in rest:
            *whole, rest[channel] = (rest[channel] + stream.read_channel(channel)).split(b"\n")
            yield from ((channel == STDERR, line.decode(errors="replace")) for line in whole)
    yield from ((channel == STDERR, line.decode(errors="replace")) for channel, line in rest.items() if line)
