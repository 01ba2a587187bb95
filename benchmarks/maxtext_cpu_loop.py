"""Runs one step of MaxText's training loop for each line on standard input; see step_on_cpu.py.

Runs in MaxText's own environment, with its own loop: only the call of an iteration is timed, until the state is ready.
"""

import pathlib
import sys
import time
from typing import Any

import jax
import maxtext
from maxtext.trainers.pre_train import train


def main(settings: list[str]) -> None:
    iteration = train.training_loop_iteration

    def when_asked(devices: dict[str, Any], *rest: Any) -> object:
        if not sys.stdin.readline():
            sys.exit(0)
        began, began_cpu = time.monotonic(), time.process_time()
        metrics = iteration(devices, *rest)
        jax.block_until_ready(devices["state"])
        print(f"\ntook {time.monotonic() - began} {time.process_time() - began_cpu}", flush=True)
        return metrics

    train.training_loop_iteration = when_asked
    base = pathlib.Path(maxtext.__file__).parent / "configs" / "base.yml"
    train.main(["train", str(base), *settings])


if __name__ == "__main__":
    main(sys.argv[1:])
