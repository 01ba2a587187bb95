"""Real sockets; each process is an object with its thread here."""

import queue
import socket
import threading

import pytest

from tpujob_trainer.distributed.failure import Failure, ProgressState
from tpujob_trainer.distributed.peer_monitor import Peers

HEARD_SECONDS = 10
NEVER_SECONDS = 3600


class Member:
    """A process and what it heard."""

    def __init__(self, process_id, connections, heartbeat_seconds, progress_state):
        self.peers = Peers(process_id, ["a", "b", "c"], connections, heartbeat_seconds=heartbeat_seconds)
        self.connections = connections
        self.heard: queue.Queue[Failure] = queue.Queue()
        self.progress_state = progress_state

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
    threads = [threading.Thread(target=m.peers.part, args=(NEVER_SECONDS,), daemon=True) for m in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HEARD_SECONDS)
        assert not thread.is_alive()


@pytest.mark.parametrize("first", [0, 1])
def test_failure_is_told_to_all_others(meet, first):
    members = meet()
    failure = Failure(first, 78, "spec.x: wrong")
    assert members[first].peers.fail(failure) == failure
    for index, member in enumerate(members):
        if index != first:
            assert member.verdict() == failure
    assert members[first].heard.empty()


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
    members = meet(heartbeat_seconds=0.5, mute=(victim,))
    for member in members:
        if member is not members[victim]:
            found = member.verdict()
            assert (found.process, found.kind) == (victim, "lost")
            assert found.message.startswith("silent for")


def test_who_goes_in_order_is_not_missed(meet):
    members = meet()
    part(*members)
    for member in members:
        member.die()
    assert all(member.heard.empty() for member in members)
    assert all(member.peers.wait(0) is None for member in members)


@pytest.mark.parametrize("reporter", [0, 1, 2])
def test_stall_names_who_is_behind_whoever_noticed(meet, reporter):
    members = meet(heartbeat_seconds=1, steps=(6, 5, 6))
    # Everybody's progress_state has reached process 0.
    while len(members[0].peers._standings) < 3:
        threading.Event().wait(0.01)
    found = members[reporter].peers.fail(Failure(reporter, 79, "no progress for 300 s", "stalled"))
    assert found.message.startswith("no progress for 300 s; behind the others: process 1 on host b (starting, after")
    for index, member in enumerate(members):
        if index != reporter:
            assert member.verdict() == found


@pytest.mark.parametrize("asked", [0, 2])
def test_request_to_stop_is_known_to_all(meet, asked):
    members = meet(heartbeat_seconds=1)
    members[asked].peers.tell_asked("SIGTERM")
    deadline = threading.Event()
    for _ in range(500):
        if all(member.peers.asked for member in members):
            break
        deadline.wait(0.01)
    assert {member.peers.asked for member in members} == {f"SIGTERM at process {asked} on host {'abc'[asked]}"}


def test_what_cannot_be_read_is_left_alone(meet):
    members = meet()
    members[1].connections[0].sendall(b'nonsense\n{"beat": {"mood": "fine"}}\n{"failure": 7}\n[]\n{"news": 1}\n')
    failure = Failure(2, 1, "after that")
    members[2].peers.fail(failure)
    assert members[0].verdict() == members[1].verdict() == failure
