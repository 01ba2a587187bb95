"""The division of a grace period between a program and its launcher."""

from __future__ import annotations


def margin_seconds(grace_seconds: float) -> float:
    """The launcher's part of a grace period: to kill and reap, pass output on, and write the termination message."""
    return min(2.0, grace_seconds / 5)
