"""What a start and a run of many processes cost process 0: rendezvous, heartbeats, a death, and calls of all.

    python -m benchmarks.start --sizes 64 512 2048 10000

Process 0 is the launcher's own code; the others are sockets of one other process that speak the real messages over
loopback (`start_clients`). JAX takes no part. Each process needs a file descriptor: 10,000 need `ulimit -n` 10500.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

HEADINGS = (
    "processes",
    "all have met, s",
    "CPU of process 0, s",
    "messages, MB to meet",
    "memory, MiB",
    "messages/s, kB/s in training",
    "CPU in training, % of a core",
    "death to last told, s",
    "load",
)


def measured(size: int, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of one size, measured in new processes."""
    command = [sys.executable, "-m", "benchmarks.start_lead"]
    command += [str(size), str(options.heartbeat_seconds), str(options.training_seconds)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


def row(found: dict[str, Any]) -> tuple[str, ...]:
    """The cells of the table row of one size."""
    met, training, told = found["met"], found["training"], found["told"]
    is_all = told["told"] == found["size"] - 2
    return (
        f"{found['size']:,}",
        f"{met['seconds']:.2f}",
        f"{found['met_cpu']:.2f}",
        f"{_messages(met):,.0f}, {_bytes(met) / 1e6:,.1f}",
        f"{found['memory_mib']:.1f}",
        f"{_messages(training):,.0f}, {_bytes(training) / 1e3:,.0f}",
        f"{100 * found['training_cpu']:.1f}",
        f"{told['seconds']:.2f}" if is_all else f"{told['told']} told after {told['seconds']:.0f}",
        f"{found['load']:.1f}",
    )


def _messages(counts: dict[str, float]) -> float:
    return counts["sent_messages"] + counts["heard_messages"]


def _bytes(counts: dict[str, float]) -> float:
    return counts["sent_bytes"] + counts["heard_bytes"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 512, 2048, 10_000])
    parser.add_argument("--heartbeat-seconds", type=float, default=30.0, help="the trainer's default is 30")
    parser.add_argument("--training-seconds", type=float, default=18.0, help="three intervals of beats")
    options = parser.parse_args()
    print("| " + " | ".join(HEADINGS) + " |")
    print("|---" * len(HEADINGS) + "|")
    for size in options.sizes:
        print("| " + " | ".join(row(measured(size, options))) + " |", flush=True)


if __name__ == "__main__":
    main()
