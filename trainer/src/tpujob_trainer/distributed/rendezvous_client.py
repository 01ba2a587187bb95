"""All processes meet before JAX starts, so that a missing one can be named.

`jax.distributed.initialize` aborts the process when a process never comes, and does not name it. So process 0
listens on the coordinator's own port first and the others report there. It stops listening when all are there, so that
JAX can; the connections stay: the processes watch each other over them (`peer_monitor`).
"""

from __future__ import annotations

import dataclasses
import json
import socket
import time
from collections.abc import Sequence

from tpujob_contract.connections import open_files, ports
from tpujob_trainer import errors
from tpujob_trainer.distributed.rendezvous_messages import Hello, Membership, to_line
from tpujob_trainer.distributed.rendezvous_server import Met, RendezvousServer

MAX_ANSWER_BYTES = 64 * 1024
"""Of a line of process 0."""
SILENCE_SECONDS = 15.0
"""Silence after which process 0 counts as gone."""
RETRY_SECONDS = 0.3
FILES_EACH = 2
"""Connections to each process: that of the rendezvous, and the one to JAX's coordination service."""
BACKLOG = 4096
"""Connections that wait to be accepted, where the kernel allows as many: all processes of a run come at once."""


def receive(own: Hello, positions: Sequence[str], *, host: str, port: int, limit_seconds: float) -> Met:
    """Waits, as process 0, for all others, and lets everyone go on.

    Raises:
        PeersMissingError: a process did not come; all present ones end with the same message.
        ConfigurationError: a process runs another program; likewise.
        ConfigurationError: the container may not have enough open files; not told to the others.
        TrainerError: the port cannot be had.
    """
    try:
        open_files.allow(len(positions), FILES_EACH)
    except open_files.TooFewFiles as error:
        raise errors.ConfigurationError(str(error)) from error
    deadline = time.monotonic() + limit_seconds
    with _listen(host, port, deadline) as listener, RendezvousServer(listener, own, positions) as reception:
        return reception.wait(deadline, limit_seconds)


def report_to(own: Hello, place_of_lead: str, *, host: str, port: int, limit_seconds: float) -> Met:
    """Reports to process 0, and goes on when everybody is there.

    Raises:
        PeersMissingError: process 0 did not answer, or another process did not come.
        ConfigurationError: a process runs another program.
    """
    deadline = time.monotonic() + limit_seconds
    problem = "no answer"
    while time.monotonic() < deadline:
        connection = None
        try:
            connection = socket.create_connection((host, port), timeout=SILENCE_SECONDS)
            connection.sendall(to_line(dataclasses.asdict(own)))
            # Unbuffered: what follows the membership is read by others.
            while line := _read_line(connection):
                said = json.loads(line)
                if "error" in said:
                    raise errors.from_dict(said)
                if "nonce" in said:
                    met = Membership.of_values(said, own), {0: connection}
                    connection = None
                    return met
                if "refused" in said:
                    problem = str(said["refused"])
                    break
                # It is there and counting: its limit decides, whichever process started earlier.
                deadline = max(deadline, time.monotonic() + SILENCE_SECONDS)
            else:
                problem = "it closed the connection"
        except (OSError, ValueError, KeyError, TypeError) as error:
            problem = str(error) or type(error).__name__
        finally:
            if connection is not None:
                connection.close()
        time.sleep(min(RETRY_SECONDS, max(deadline - time.monotonic(), 0)))
    raise errors.PeersMissingError(
        f"process 0 ({place_of_lead}) at {host}:{port} did not answer within {limit_seconds:g} s ({problem}); "
        "see whether its pod is scheduled, and whether its log ends before this"
    )


def _read_line(connection: socket.socket) -> bytes:
    """The next line; nothing when the connection is closed."""
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < MAX_ANSWER_BYTES:
        # Looked at first: what follows the line stays for those who read after us.
        seen = connection.recv(4096, socket.MSG_PEEK)
        if not seen:
            return b""
        line += connection.recv(seen.index(b"\n") + 1 if b"\n" in seen else len(seen))
    return bytes(line)


def _listen(host: str, port: int, deadline: float) -> socket.socket:
    while True:
        try:
            return ports.listen(host, port, backlog=BACKLOG)
        except OSError as error:
            # A predecessor may still be leaving.
            if time.monotonic() >= deadline:
                raise errors.TrainerError(
                    f"process 0 cannot listen on port {port}: {error.strerror or error}; end the program that has it"
                ) from error
            time.sleep(RETRY_SECONDS)
