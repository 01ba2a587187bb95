"""Plays a random sample of mutants, then the named mistakes, and reports the share that was noticed.

The mutants of all modules are shuffled by the seed, so that any first part of them is a fair sample; each survivor is
printed. Exit code 1: a named mistake went unnoticed, or a smaller share than `--least`.
"""

import argparse
import collections
import gc
import importlib.util
import os
import random
import sys
import time
from collections.abc import Collection
from pathlib import Path

from tests.quick_compiling import XLA_FLAGS
from tools.mutation.mutants import Mutant, mutants
from tools.mutation.named import MISTAKES, is_mistake_noticed
from tools.mutation.targets import EQUIVALENT, TARGETS
from tools.mutation.trial import ROOT, is_noticed, record


def main() -> int:
    """Runs the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make mutation", description=__doc__)
    parser.add_argument("--sample", type=int, default=400, help="how many random mutants to try")
    parser.add_argument("--seconds", type=float, default=1800.0, help="start no mutant after this time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="modules whose name holds this")
    parser.add_argument("--least", type=float, default=0.9, help="share that must be noticed")
    given = parser.parse_args()
    # As in tests/conftest.py: jax reads these at its import, which precedes the import of that file.
    os.environ.update(JAX_PLATFORMS="cpu", JAX_NUM_CPU_DEVICES="8", XLA_FLAGS=XLA_FLAGS)
    deadline = time.monotonic() + given.seconds
    names = [name for name in TARGETS if given.only in name]
    chosen = [(name, mutant) for name in names for mutant in _of(name)]
    random.Random(given.seed).shuffle(chosen)  # noqa: S311 - a sample, no secret
    chosen, exist = chosen[: given.sample], len(chosen)
    share = _play(chosen, deadline) if chosen else 1.0
    unnoticed = _play_mistakes(given.only)
    sys.stdout.write(f"seed {given.seed}, {exist} mutants exist\n")
    return int(bool(unnoticed) or share < given.least)


def _play(chosen: list[tuple[str, Mutant]], deadline: float) -> float:
    """Tries mutants until the deadline; returns the share of them that was detected."""
    paths = {name: _path(name) for name, _ in chosen}
    reach = record(_files({start for name in paths for start in TARGETS[name]}), [str(path) for path in paths.values()])
    gc.freeze()
    tried: collections.Counter[str] = collections.Counter()
    noticed: collections.Counter[str] = collections.Counter()
    for name, mutant in chosen:
        if time.monotonic() > deadline:
            break
        tests = reach.tests(str(paths[name]), mutant.function, TARGETS[name])
        tried[name] += 1
        if tests and is_noticed(name, mutant.make(), paths[name], tests, sum(reach.seconds[test] for test in tests)):
            noticed[name] += 1
        else:
            sys.stdout.write(f"survived: {name}, {mutant}{'' if tests else ' (no test enters this function)'}\n")
            sys.stdout.flush()
    for name in sorted(tried):
        sys.stdout.write(f"{noticed[name]:4} of {tried[name]:4}  {name}\n")
    share = noticed.total() / max(tried.total(), 1)
    sys.stdout.write(f"{noticed.total()} of {tried.total()} mutants were noticed, {share:.1%}\n")
    return share


def _play_mistakes(only: str) -> list[str]:
    """Tries the named mistakes; returns those that no test detected."""
    chosen = [mistake for mistake in MISTAKES if only in mistake.module]
    if not chosen:
        return []
    record(sorted({test for mistake in chosen for test in mistake.tests}), [])
    unnoticed = [mistake.what for mistake in chosen if not is_mistake_noticed(mistake)]
    for what in unnoticed:
        sys.stdout.write(f"unnoticed: {what}\n")
    sys.stdout.write(f"{len(chosen) - len(unnoticed)} of {len(chosen)} named mistakes were noticed\n")
    return unnoticed


def _files(starts: Collection[str]) -> list[str]:
    """The test files whose paths start with one of `starts`."""
    found = (str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
    return sorted(path for path in found if path.startswith(tuple(starts)))


def _of(name: str) -> list[Mutant]:
    found = mutants(_path(name).read_text())
    return [mutant for mutant in found if (name, mutant.text, mutant.before, mutant.after) not in EQUIVALENT]


def _path(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin)


if __name__ == "__main__":
    sys.exit(main())
