"""Time of the trainer's imports, as they are and with pandas and garbage collection; in turns.

Run it from the repository's root: `make bench-restart`.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time

IMPORTS = "import tpujob_trainer.main, tpujob_trainer.tasks.pretrain"
PROGRAMS = {
    "with both": f"import pandas; {IMPORTS}",
    "as they are": f"import gc; gc.disable(); {IMPORTS}",
}
PAIRS = 10


def costs(program: str) -> tuple[float, float]:
    """Runs a program; returns its CPU seconds and its wall-clock seconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([sys.executable, "-c", program], check=True)
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, ended - began


def main() -> None:
    pairs = [[costs(program) for program in PROGRAMS.values()] for _ in range(PAIRS + 1)]
    del pairs[0]  # the first read the files from disk
    for index, name in enumerate(PROGRAMS):
        cpu, wall = (statistics.median(pair[index][at] for pair in pairs) for at in (0, 1))
        print(f"{name:12} {cpu:.2f} CPU seconds, {wall:.2f} s")
    cpu, wall = (statistics.median(pair[1][at] / pair[0][at] for pair in pairs) for at in (0, 1))
    print(f"ratio        {cpu:.2f} of the CPU time, {wall:.2f} of the time (medians of {PAIRS} pairs)")


if __name__ == "__main__":
    main()
