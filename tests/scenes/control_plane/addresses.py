"""Addresses of loopback for pods whose reports tests serve at a fixed port."""

import os


def pod_address(number: int) -> str:
    """One of 127.0.0.0/8 that no other test run of this machine takes; pods of a run are told apart by the number."""
    high, low = divmod(os.getpid() % 2**16, 2**8)
    return f"127.{77 + number}.{high}.{low}"
