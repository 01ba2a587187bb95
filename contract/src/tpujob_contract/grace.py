"""How a grace period is divided between a program and its launcher."""

from __future__ import annotations


def margin_seconds(grace_seconds: float) -> float:
    """The part of a grace period that is ours: for killing, reaping, passing output on, the termination message."""
    return min(2.0, grace_seconds / 5)
