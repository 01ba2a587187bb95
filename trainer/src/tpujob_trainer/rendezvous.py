"""Everybody meets before JAX starts, so that whoever is missing can be named.

`jax.distributed.initialize` aborts the process when somebody never comes, and says not who. So process 0 listens on the
coordinator's own port first, the others report there, and the port is free again when JAX binds it.
One JSON object a line, bounded in size; anything else that connects is dropped. Nothing said here is trusted beyond
naming processes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import json
import logging
import secrets
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tpujob_trainer import errors

logger = logging.getLogger(__name__)

MAX_LINE_BYTES = 16 * 1024
MAX_ANSWER_BYTES = 1024 * 1024
"""Of process 0: it names all hosts."""
MAX_STRANGERS = 64
"""Connections that have not said who they are, kept at once."""
STRANGER_SECONDS = 10.0
"""Time to say who one is."""
ALIVE_SECONDS = 1.0
"""How often process 0 tells those present that it is still waiting."""
SILENCE_SECONDS = 15.0
"""Silence after which process 0 counts as gone."""
RETRY_SECONDS = 0.3


@dataclasses.dataclass(frozen=True)
class Hello:
    """What a process says about itself."""

    process_id: int
    run: str
    """Job, incarnation and attempt: a process of another one is a left-over."""
    host: str
    configuration: str
    """Hash of the configuration that it was given."""
    versions: Mapping[str, str]
    nonce: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))
    """Tells apart two processes that give the same id."""

    @classmethod
    def parse(cls, line: bytes) -> Hello:
        """The hello in a line from the network.

        Raises:
            ValueError: it is something else.
        """
        try:
            values = json.loads(line)
        except RecursionError:
            values = None
        if not isinstance(values, dict) or values.keys() != {f.name for f in dataclasses.fields(cls)}:
            raise ValueError("not a hello")
        versions = values["versions"]
        texts = [values[k] for k in ("run", "host", "configuration", "nonce")]
        if not isinstance(versions, dict) or not all(isinstance(t, str) for t in (*texts, *versions.values())):
            raise ValueError("not a hello")
        if type(values["process_id"]) is not int:
            raise ValueError("not a hello")
        return cls(**values)


@dataclasses.dataclass(frozen=True)
class Meeting:
    """What everybody goes on with."""

    nonce: str
    """Eight hexadecimal digits, new each time."""
    hosts: tuple[str, ...]
    """Host name of each process."""


def missing(places: Sequence[str], arrived: Mapping[int, Hello], limit_seconds: float) -> errors.PeersMissingError:
    """The error that names each process that did not come. `places[i]` says where process i should be."""
    absent = [f"process {i} ({places[i]})" for i in range(len(places)) if i not in arrived]
    return errors.PeersMissingError(
        f"{len(absent)} of {len(places)} processes did not come within {limit_seconds:g} s: {', '.join(absent)}; "
        "see whether their pods are scheduled, and whether their logs end before this"
    )


def disagreement(arrived: Mapping[int, Hello]) -> errors.ConfigurationError | None:
    """The error that names who runs something else than process 0, or None."""
    own = arrived[0]
    for other in (arrived[i] for i in sorted(arrived)):
        pair = f"process {other.process_id} on host {other.host} and process 0 on host {own.host}"
        if other.configuration != own.configuration:
            return errors.ConfigurationError(
                f"{pair} have different configurations ({other.configuration} and {own.configuration}); "
                "all processes of a run must be given the same TPUJOB_CONFIG"
            )
        if dict(other.versions) != dict(own.versions):
            names = sorted(other.versions.keys() | own.versions.keys())
            differ = [
                f"{n} {other.versions.get(n, 'none')} and {own.versions.get(n, 'none')}"
                for n in names
                if other.versions.get(n) != own.versions.get(n)
            ]
            return errors.ConfigurationError(
                f"{pair} have different versions: {', '.join(differ)}; all processes of a run must use the same image"
            )
    return None


def bind_host(coordinator_host: str) -> str | None:
    """Where process 0 listens: on the loopback address when the coordinator's is one, else everywhere (None)."""
    if coordinator_host == "localhost":
        return "127.0.0.1"
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(coordinator_host).is_loopback:
            return coordinator_host
    return None


def receive(own: Hello, places: Sequence[str], *, host: str, port: int, limit_seconds: float) -> Meeting:
    """Waits, as process 0, for all others, and lets everyone go on.

    Raises:
        PeersMissingError: somebody did not come; everybody present ends with the same words.
        ConfigurationError: somebody runs something else; likewise.
        TrainerError: the port cannot be had.
    """
    deadline = time.monotonic() + limit_seconds
    with _listen(host, port, deadline) as listener, _Reception(listener, own, places) as reception:
        return reception.wait(deadline, limit_seconds)


def report_to(own: Hello, place_of_lead: str, *, host: str, port: int, limit_seconds: float) -> Meeting:
    """Reports to process 0, and goes on when everybody is there.

    Raises:
        PeersMissingError: process 0 did not answer, or somebody else did not come.
        ConfigurationError: somebody runs something else.
    """
    deadline = time.monotonic() + limit_seconds
    problem = "no answer"
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((host, port), timeout=SILENCE_SECONDS) as connection:
                connection.sendall(_line(dataclasses.asdict(own)))
                with connection.makefile("rb") as lines:
                    while line := lines.readline(MAX_ANSWER_BYTES):
                        said = json.loads(line)
                        if "error" in said:
                            raise errors.from_dict(said)
                        if "nonce" in said:
                            return Meeting(str(said["nonce"]), tuple(map(str, said["hosts"])))
                        if "refused" in said:
                            problem = str(said["refused"])
                            break
                        # It is there and counting: its limit decides, whoever of us began earlier.
                        deadline = max(deadline, time.monotonic() + SILENCE_SECONDS)
                    else:
                        problem = "it closed the connection"
        except (OSError, ValueError, KeyError, TypeError) as error:
            problem = str(error) or type(error).__name__
        time.sleep(min(RETRY_SECONDS, max(deadline - time.monotonic(), 0)))
    raise errors.PeersMissingError(
        f"process 0 ({place_of_lead}) at {host}:{port} did not answer within {limit_seconds:g} s ({problem}); "
        "see whether its pod is scheduled, and whether its log ends before this"
    )


def _listen(host: str, port: int, deadline: float) -> socket.socket:
    everywhere = bind_host(host) is None
    while True:
        try:
            if everywhere and socket.has_dualstack_ipv6():
                return socket.create_server(("", port), family=socket.AF_INET6, backlog=256, dualstack_ipv6=True)
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return socket.create_server(("" if everywhere else bind_host(host) or "", port), family=family, backlog=256)
        except OSError as error:
            # A predecessor may still be leaving.
            if time.monotonic() >= deadline:
                raise errors.TrainerError(
                    f"process 0 cannot listen on port {port}: {error.strerror or error}; end the program that has it"
                ) from error
            time.sleep(RETRY_SECONDS)


def _line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values).encode() + b"\n"


@dataclasses.dataclass
class _Guest:
    connection: socket.socket
    since: float
    heard: bytes = b""
    hello: Hello | None = None


class _Reception:
    """Process 0's side: one thread, non-blocking sockets."""

    def __init__(self, listener: socket.socket, own: Hello, places: Sequence[str]) -> None:
        self._places = places
        self._own = own
        self._guests: dict[socket.socket, _Guest] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def __enter__(self) -> _Reception:
        return self

    def __exit__(self, *_: object) -> None:
        for guest in list(self._guests.values()):
            self._drop(guest)
        self._selector.close()

    def wait(self, deadline: float, limit_seconds: float) -> Meeting:
        next_alive = time.monotonic()
        said = -1
        while True:
            arrived = self._arrived()
            try:
                if problem := disagreement(arrived):
                    raise problem
                if len(arrived) == len(self._places):
                    return self._let_go(arrived)
                if time.monotonic() >= deadline:
                    raise missing(self._places, arrived, limit_seconds)
            except errors.TrainerError as error:
                self._tell(errors.to_dict(error))
                self._see_off()
                raise
            if time.monotonic() >= next_alive:
                next_alive = time.monotonic() + ALIVE_SECONDS
                self._tell({"waiting": len(self._places) - len(arrived)})
                self._drop_strangers()
                if len(arrived) != said:
                    said = len(arrived)
                    logger.info("Waiting for processes: %d of %d are here", said, len(self._places))
            self._turn(max(min(next_alive, deadline) - time.monotonic(), 0))

    def _arrived(self) -> dict[int, Hello]:
        return {0: self._own} | {g.hello.process_id: g.hello for g in self._guests.values() if g.hello}

    def _let_go(self, arrived: Mapping[int, Hello]) -> Meeting:
        meeting = Meeting(secrets.token_hex(4), tuple(arrived[i].host for i in range(len(self._places))))
        self._tell(dataclasses.asdict(meeting))
        self._see_off()
        return meeting

    def _tell(self, values: Mapping[str, Any]) -> None:
        for guest in [g for g in self._guests.values() if g.hello]:
            self._send(guest, values)

    def _send(self, guest: _Guest, values: Mapping[str, Any]) -> None:
        try:
            guest.connection.sendall(_line(values))
        except OSError:
            self._drop(guest)

    def _see_off(self) -> None:
        """Waits until the others have closed first: then no socket of ours lingers on the port that JAX binds next."""
        until = time.monotonic() + 5
        while any(g.hello for g in self._guests.values()) and time.monotonic() < until:
            self._turn(0.2)

    def _turn(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._listener:
                self._accept()
            else:
                self._hear(self._guests[key.fileobj])  # type: ignore[index]

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if sum(g.hello is None for g in self._guests.values()) >= MAX_STRANGERS:
            connection.close()
            return
        connection.setblocking(False)
        self._guests[connection] = _Guest(connection, time.monotonic())
        self._selector.register(connection, selectors.EVENT_READ)

    def _hear(self, guest: _Guest) -> None:
        try:
            heard = guest.connection.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        guest.heard += heard
        if not heard or len(guest.heard) > MAX_LINE_BYTES or guest.hello is not None:
            self._drop(guest)
        elif guest.heard.endswith(b"\n"):
            self._introduce(guest)

    def _introduce(self, guest: _Guest) -> None:
        try:
            hello = Hello.parse(guest.heard)
        except ValueError:
            logger.warning("Dropped a connection to the coordinator's port that is not a process of this run")
            self._drop(guest)
            return
        refused = None
        if hello.run != self._own.run:
            refused = f"it belongs to {self._own.run}, this process to {hello.run}"
        elif not 0 < hello.process_id < len(self._places):
            refused = f"it expects processes 0 to {len(self._places) - 1}"
        elif (other := self._arrived().get(hello.process_id)) and other.nonce != hello.nonce:
            refused = f"there is a process {hello.process_id} already, on host {other.host}"
        if refused:
            logger.warning("Refused process %d on host %s: %s", hello.process_id, hello.host, refused)
            self._send(guest, {"refused": refused})
            self._drop(guest)
        else:
            guest.hello = hello

    def _drop_strangers(self) -> None:
        now = time.monotonic()
        for guest in [g for g in self._guests.values() if g.hello is None and now - g.since > STRANGER_SECONDS]:
            self._drop(guest)

    def _drop(self, guest: _Guest) -> None:
        if self._guests.pop(guest.connection, None) is not None:
            self._selector.unregister(guest.connection)
            guest.connection.close()
