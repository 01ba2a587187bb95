"""Tries mutants of the listed modules for a bounded time, and reports the share that was noticed.

The mutants of all modules are shuffled by the seed, so that a short run is a fair sample; one that was noticed is not
told. Exit code 1: fewer were noticed than `--least`.
"""

from __future__ import annotations

import argparse
import ast
import collections
import gc
import importlib.util
import os
import random
import sys
import time
from pathlib import Path

from tests.quick_compiling import XLA_FLAGS
from tools.mutation.mutants import Mutant, mutants
from tools.mutation.targets import EQUIVALENT, TARGETS
from tools.mutation.trial import is_noticed, preload


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="make mutation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="for all of it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="modules whose name holds this")
    parser.add_argument("--least", type=float, default=0.9, help="share that must be noticed")
    given = parser.parse_args()
    chosen = [(name, mutant) for name in TARGETS if given.only in name for mutant in _of(name)]
    random.Random(given.seed).shuffle(chosen)  # noqa: S311 - a sample, no secret
    # As the trainer's tests have it: jax reads these when it is imported, which is before the tests are.
    os.environ.update(JAX_PLATFORMS="cpu", JAX_NUM_CPU_DEVICES="8", XLA_FLAGS=XLA_FLAGS)
    preload(sorted({test for name, _ in chosen for test in TARGETS[name]}))
    gc.freeze()
    for name in sorted({name for name, _ in chosen}):
        if is_noticed(name, ast.parse(_path(name).read_text()), _path(name), TARGETS[name]):
            sys.exit(f"{name}: its tests fail without any change")
    deadline = time.monotonic() + given.seconds
    tried: collections.Counter[str] = collections.Counter()
    noticed: collections.Counter[str] = collections.Counter()
    for name, mutant in chosen:
        if time.monotonic() > deadline:
            break
        tried[name] += 1
        if is_noticed(name, mutant.tree, _path(name), TARGETS[name]):
            noticed[name] += 1
        else:
            sys.stdout.write(f"survived: {name}, {mutant}\n")
            sys.stdout.flush()
    for name in sorted(tried):
        sys.stdout.write(f"{noticed[name]:4} of {tried[name]:4}  {name}\n")
    share = noticed.total() / max(tried.total(), 1)
    sys.stdout.write(f"{noticed.total()} of {tried.total()} mutants were noticed, {share:.1%}; {len(chosen)} exist\n")
    return int(share < given.least)


def _of(name: str) -> list[Mutant]:
    found = mutants(_path(name).read_text())
    return [mutant for mutant in found if (name, mutant.before, mutant.after) not in EQUIVALENT]


def _path(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin)


if __name__ == "__main__":
    sys.exit(main())
