"""How long launchers wait for one another."""

HEARTBEATS = 5
"""Heartbeats within one heartbeat limit."""
HEARTBEAT_SECONDS = 30.0
"""Silence after which a launcher counts as lost, unless its program states another limit; none is named before."""
UNCONNECTED_SECONDS = 120.0
"""The same for a program that does not connect, and cannot state how long a network outage it survives: JAX survives
up to 100 s."""
STRAGGLER_HEARTBEATS = 2
"""Without progress on process 0: by the second of them all others have reported their steps."""
RECONNECT_SECONDS = 3.0
"""Time for a launcher whose connection broke to reconnect: it tries once a second."""
FINISHED_SECONDS = 60.0
"""How long a program that has peers may be in its exit handlers, without a failure, before that is reported; and how
long others may go on after one has finished."""
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
STEADY_SECONDS = 600.0
"""An attempt that lasted this long is not part of a crash loop: the next one follows without a pause."""
READY_SECONDS = 60.0
"""Time for all hosts to end what is left of an attempt: killed processes, and a TPU driver that releases its chips."""
LEAVE_SECONDS = 5.0
"""From the loss of a pod until the programs of the others are ended: the connection may come back, and programs that
end because a peer was asked to stop save first. Kubernetes replaces a pod after 10 s at the earliest."""


def named_after_seconds(heartbeat_seconds: float) -> float:
    """Silence after which a launcher is named: with a long heartbeat, a healthy one sends nothing for minutes."""
    return max(HEARTBEAT_SECONDS, 2 * heartbeat_seconds / HEARTBEATS)
