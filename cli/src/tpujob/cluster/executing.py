"""A command on several hosts of a job at once: the lines that it writes, and its exit codes."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tpujob.cluster.client import Cluster
from tpujob.errors import CommandError

STDOUT, STDERR, ERROR = 1, 2, 3
"""Channels of the kubelet's protocol (kubernetes/kubernetes:pkg/kubelet/cri/streaming/remotecommand/websocket.go)."""
POLL_SECONDS = 1
"""How long one look for more output waits."""
FAILED = 1


class Stream(Protocol):
    """The connection to a program in a container, as kubernetes' WSClient is one."""

    def is_open(self) -> bool:
        """Whether more may come."""

    def update(self, timeout: float) -> None:
        """Receives what comes within so many seconds."""

    def read_channel(self, channel: int, timeout: float = 0) -> bytes:
        """What has come on a channel."""


@dataclass(frozen=True)
class Line:
    """One line of output."""

    pod: int
    """Place of the pod among those asked for."""
    text: str
    is_error: bool
    """Whether it was written to stderr."""


@dataclass(frozen=True)
class Ended:
    """The end of the command in a pod."""

    pod: int
    exit_code: int
    """1 where the connection broke."""
    message: str = ""
    """What broke it."""


def run(cluster: Cluster, pods: Sequence[Mapping[str, Any]], command: Sequence[str]) -> Iterator[Line | Ended]:
    """Runs a command in the main container of each pod; lines as they come, and each end once.

    Args:
        cluster: where the pods are.
        pods: that run.
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
    """Exit code and what there is to say of it, from the Status that the kubelet sends at the end."""
    try:
        found = json.loads(status)
    except ValueError:
        return FAILED, "the connection ended before the command did"
    if found["status"] == "Success":
        return 0, ""
    if found.get("reason") == "NonZeroExitCode":
        return int(found["details"]["causes"][0]["message"]), ""
    return FAILED, str(found.get("message", ""))


def _lines(stream: Stream) -> Iterator[tuple[bool, str]]:
    """Whole lines, with whether they are of stderr, until the stream is closed."""
    rest = {STDOUT: b"", STDERR: b""}
    is_open = True
    while is_open:
        stream.update(timeout=POLL_SECONDS)
        # Asked first: what came before the end is read below.
        is_open = stream.is_open()
        for channel in rest:
            *whole, rest[channel] = (rest[channel] + stream.read_channel(channel)).split(b"\n")
            yield from ((channel == STDERR, line.decode(errors="replace")) for line in whole)
    yield from ((channel == STDERR, line.decode(errors="replace")) for channel, line in rest.items() if line)
