"""Changes valid inputs of every reader for a while: python -m tests.fuzz --minutes 10 [--seed 1] [NAME…]

Prints how many were tried, taken and refused, and the shortest change that a reader does not answer as it should.
"""

import argparse
import sys
import tempfile
import time
import traceback
from pathlib import Path

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.target import Laid, Target
from tests.fuzz.test_fuzz import TARGETS

AT_ONCE = 200
"""Changes between two looks at the clock."""


def say(text: str) -> None:
    """Writes a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Tries all targets, or those that are named in part, each for the same time; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("names", nargs="*", help="of targets, or parts of them")
    options = parser.parse_args()
    chosen = [each for each in TARGETS if not options.names or any(name in each.name for name in options.names)]
    seconds = options.minutes * 60 / max(len(chosen), 1)
    failed = [each for each in chosen if not tried(each, seconds, options.seed)]
    say(f"{len(chosen)} readers, seed {options.seed}, {options.minutes:g} minutes: {len(failed)} failed")
    return 1 if failed else 0


def tried(target: Target, seconds: float, seed: int) -> bool:
    """Whether a target answered everything for so long."""
    counts = {"taken": 0, "refused": 0}
    until, number = time.monotonic() + seconds, 0
    with tempfile.TemporaryDirectory() as folder:
        laid = Laid(target, Path(folder))

        def check(content: bytes) -> None:
            counts["refused" if laid.check(content) else "taken"] += 1

        while time.monotonic() < until:
            number += 1
            found = settings(
                max_examples=AT_ONCE,
                database=None,
                deadline=None,
                derandomize=False,
                phases=(Phase.generate, Phase.shrink),
                suppress_health_check=list(HealthCheck),
            )(hypothesis.seed(seed * 100_003 + number)(given(content=laid.changes())(check)))
            try:
                found()
            except Exception:  # noqa: BLE001 - whatever a reader raises is what is looked for
                say(f"{target.name}: FAILED\n{traceback.format_exc()}")
                return False
    tries = sum(counts.values())
    say(f"{target.name}: {tries} tried, {counts['taken']} taken, {counts['refused']} refused")
    return True


if __name__ == "__main__":
    sys.exit(main())
