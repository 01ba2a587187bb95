"""Real sockets; each process is an object with its thread here."""

import queue
import socket
import threading
import time

import pytest

from tools.localcluster.waiting import wait_for
from tpujob_trainer.distributed.failure import Failure, ProgressState, lost, stragglers
from tpujob_trainer.distributed.peer_monitor import MANY_LINES, Peers
from tpujob_trainer.distributed.rendezvous_messages import to_line

HEARD_SECONDS = 60
HEARTBEAT_SECONDS = 100
"""Longer than the machine may be busy with something else."""
NEVER_SECONDS = 3600


class Member:
    """A process and what it heard."""

    def __init__(self, process_id, connections, heartbeat_seconds, progress_state):
        self.ahead = 0.0
        """Of the clock, in seconds."""
        known = [host if process_id == 0 or i in (0, process_id) else "" for i, host in enumerate("abc")]
        self.peers = Peers(process_id, known, connections, heartbeat_seconds=heartbeat_seconds, clock=self.clock)
        self.connections = connections
        self.heard: queue.Queue[Failure] = queue.Queue()
        self.progress_state = progress_state

    def clock(self):
        return time.monotonic() + self.ahead

    def start(self):
        self.peers.start(on_failure=self.heard.put, progress_state=lambda: self.progress_state)

    def verdict(self):
        return self.heard.get(timeout=HEARD_SECONDS)

    def die(self):
        """As the kernel closes the connections of a killed process."""
        for connection in self.connections.values():
            connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def meet():
    """A function that makes processes 0, 1 and 2."""
    sockets: list[socket.socket] = []

    def meet(*, heartbeat_seconds=NEVER_SECONDS, mute=(), steps=(5, 5, 5)):
        pairs = {i: socket.socketpair() for i in (1, 2)}
        sockets.extend(s for pair in pairs.values() for s in pair)
        members = [
            Member(0, {i: pair[0] for i, pair in pairs.items()}, heartbeat_seconds, ProgressState(step=steps[0]))
        ]
        members += [Member(i, {0: pairs[i][1]}, heartbeat_seconds, ProgressState(step=steps[i])) for i in (1, 2)]
        for index, member in enumerate(members):
            if index not in mute:
                member.start()
        return members

    yield meet
    for each in sockets:
        each.close()


def part(*members):
    """All go at the same time, and nobody waits for longer than it takes to hear the others go."""
    threads = [threading.Thread(target=m.peers.disconnect, args=(NEVER_SECONDS,), daemon=True) for m in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HEARD_SECONDS)
        assert not thread.is_alive()


@pytest.mark.parametrize("first", [0, 1])
def test_failure_is_sent_to_all_others(meet, first):
    members = meet()
    failure = Failure(first, 78, "spec.x: wrong")
    assert members[first].peers.fail(failure) == failure
    for index, member in enumerate(members):
        if index != first:
            assert member.verdict() == failure
    assert members[first].heard.empty()


def test_host_of_the_first_to_fail_is_told(meet):
    members = meet()
    members[1].peers.fail(Failure(1, 78, "spec.x: wrong"))
    members[2].verdict()
    assert members[2].peers.name(1) == "process 1 on host b"


def test_first_failure_is_everybodys(meet):
    members = meet()
    first = Failure(1, 1, "first")
    assert members[1].peers.fail(first) == first
    assert members[2].verdict() == first
    assert members[2].peers.fail(Failure(2, 1, "second")) == first
    assert members[0].peers.fail(Failure(0, 1, "third")) == first


@pytest.mark.parametrize("victim", [0, 2])
def test_killed_process_is_noticed_at_once(meet, victim):
    # It says nothing more: its own thread would take the first connection that breaks for the loss of another process.
    members = meet(mute=(victim,))
    members[victim].die()
    for member in members:
        if member is not members[victim]:
            found = member.verdict()
            assert (found.process, found.kind) == (victim, "lost")
            assert found.message.startswith("its connection broke")


@pytest.mark.parametrize("victim", [0, 2])
def test_silent_process_is_noticed_within_the_heartbeat(meet, victim):
    members = meet(heartbeat_seconds=5, mute=(victim,))
    for member in members:
        if member is not members[victim]:
            found = member.verdict()
            assert (found.process, found.kind) == (victim, "lost")
            assert found.message.startswith("silent for")


def test_silent_one_among_many_is_named():
    pairs = [socket.socketpair() for _ in range(2 * MANY_LINES)]
    ahead = 0.0
    heard: queue.Queue[Failure] = queue.Queue()
    hosts = [f"host-{i}" for i in range(len(pairs) + 1)]
    lines = {i: pair[0] for i, pair in enumerate(pairs, 1)}
    lead = Peers(
        0, hosts, lines, heartbeat_seconds=HEARTBEAT_SECONDS, clock=lambda: time.monotonic() + ahead
    )  # fmt: skip
    lead.start(on_failure=heard.put)
    try:
        ahead = 0.9 * HEARTBEAT_SECONDS
        for i, (_, other) in enumerate(pairs, 1):
            if i != 7:
                other.sendall(to_line({"beat": {}}))
        wait_for("all beats", lambda: len(lead._beat_at) == len(pairs) - 1)
        ahead = 1.1 * HEARTBEAT_SECONDS
        pairs[0][1].sendall(to_line({"beat": {}}))
        found = heard.get(timeout=HEARD_SECONDS)
        assert (found.process, found.kind) == (7, "lost")
        assert "and so" not in found.message
    finally:
        for pair in pairs:
            pair[1].close()


def test_message_about_thousands_names_twenty():
    message = lost(range(1, 10_000), "process {}".format, silent_seconds=30).message
    assert "process 21 and 9978 more" in message
    states = {i: ProgressState(step=5 + (i == 0)) for i in range(10_000)}
    assert stragglers(states, "process {}".format).endswith("process 20 (starting, after step 5); and 9979 more")


def test_who_goes_in_order_is_not_missed(meet):
    members = meet()
    part(*members)
    for member in members:
        member.die()
    assert all(member.heard.empty() for member in members)
    assert all(member.peers.wait(0) is None for member in members)


@pytest.mark.parametrize("reporter", [0, 1, 2])
def test_stall_names_who_is_behind_whoever_noticed(meet, reporter):
    members = meet(heartbeat_seconds=HEARTBEAT_SECONDS, steps=(6, 5, 6))
    # Everybody's progress has reached process 0.
    wait_for("the progress of all", lambda: len(members[0].peers._progress_states) == 3)
    found = members[reporter].peers.fail(Failure(reporter, 79, "no progress for 300 s", "stalled"))
    assert found.message.startswith("no progress for 300 s; behind the others: process 1 on host b (starting, after")
    for index, member in enumerate(members):
        if index != reporter:
            assert member.verdict() == found


STANDING_SECONDS = 50.0
"""Longer than two of five beats of a hundred seconds."""


@pytest.mark.parametrize(
    ("lead", "beat_seconds", "named"),
    [
        (ProgressState(step=6, seconds=STANDING_SECONDS), 0, "process 1 on host b (starting, after step 5)"),
        (ProgressState(step=6, seconds=20.0), 0, None),
        (ProgressState(phase="failed", step=6, seconds=STANDING_SECONDS), 0, None),
        (ProgressState(step=6, seconds=STANDING_SECONDS), 40, None),
    ],
    ids=["nobody goes on", "steps are made", "at the end", "others have said nothing since"],
)
def test_straggler_is_named_while_nobody_goes_on(meet, lead, beat_seconds, named):
    members = meet(heartbeat_seconds=HEARTBEAT_SECONDS, steps=(6, 5, 6))
    assert members[0].peers.stragglers() is None
    wait_for("a beat of all others", lambda: len(members[0].peers._beat_at) == 2)
    members[0].progress_state, members[0].ahead = lead, beat_seconds
    assert members[0].peers.stragglers() == named
    members[1].progress_state = lead
    assert members[1].peers.stragglers() is None


@pytest.mark.parametrize("asked", [0, 2])
def test_request_to_stop_is_known_to_all(meet, asked):
    members = meet(heartbeat_seconds=HEARTBEAT_SECONDS)
    members[asked].peers.announce_stop("SIGTERM")
    wait_for("all to have heard", lambda: all(member.peers.asked for member in members))
    assert {member.peers.asked for member in members} == {f"SIGTERM at process {asked} on host {'abc'[asked]}"}


def test_what_cannot_be_read_is_left_alone(meet):
    members = meet()
    members[1].connections[0].sendall(b'nonsense\n{"beat": {"mood": "fine"}}\n{"failure": 7}\n[]\n{"news": 1}\n')
    failure = Failure(2, 1, "after that")
    members[2].peers.fail(failure)
    assert members[0].verdict() == members[1].verdict() == failure
