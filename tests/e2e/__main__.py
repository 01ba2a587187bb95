"""Plays the tests: prepares the surroundings, runs pytest in three acts, and takes away what it brought.

python -m tests.e2e                         on the cluster of `make cluster`, or one that ends with the tests
python -m tests.e2e --kubeconfig FILE       on a cluster that somebody brings; see tests/e2e/foreign.py
python -m tests.e2e --core                  those that CI plays, in a third of the time
python -m tests.e2e --nights                the long scenarios of nights instead, on the cluster of `make cluster`
python -m tests.e2e --isolated              a place without a network instead, for which no cluster is needed
python -m tests.e2e -- -k suspended         only some tests; what follows `--` is for pytest

1. Tests in which nobody touches the operator, two at a time.
2. Tests in whose middle its pod is killed, two at a time.
3. What only shows afterwards: what the operator asked for, and what a cluster leaves on this machine.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.e2e import foreign
from tests.e2e.proxy import proxied
from tests.e2e.surroundings import VARIABLE, Surroundings
from tools.localcluster import background, machine, one_machine
from tools.localcluster.__main__ import EXPECTED
from tools.localcluster.product_images import ImagesUnavailable
from tools.localcluster.toolchain import ToolsUnavailable
from tools.localcluster.traces import traces

FOLDER = Path(__file__).parent
SCRATCH = background.DIRECTORY.parent / "e2e"
BEFORE = SCRATCH / "traces-before.json"
COMPLETE = "TPUJOB_E2E_COMPLETE"
"""Set for the last act when all tests were played before it."""
type Act = tuple[str, str, Sequence[str]]
"""What it is called, which tests it has by their marks, and arguments for pytest."""
LONG_NIGHTS: Act = ("long nights", "e2e and faults", ())
ISOLATED_SITE: Act = ("a place without a network", "e2e and isolated", ())
NO_TESTS = 5
"""Exit code of pytest when a choice leaves none."""


def main(arguments: list[str]) -> int:
    """The exit code: 0 when nothing failed, or nothing could be played."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kubeconfig", type=Path, help="an administrator's, of a cluster that is there already")
    parser.add_argument("--core", action="store_true", help="play the tests marked `core` only")
    parser.add_argument("--nights", action="store_true", help="play the long scenarios of nights")
    parser.add_argument("--isolated", action="store_true", help="play the tests of a place without a network")
    parser.add_argument("pytest", nargs="*", metavar="ARGUMENT", help="for pytest, after --")
    options = parser.parse_args(arguments)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    # So that what was brought is taken away then, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if options.isolated:
            return _play_acts((ISOLATED_SITE,), os.environ, options.pytest)
        if options.kubeconfig is not None:
            cluster = foreign.prepared(options.kubeconfig, os.environ, SCRATCH, say)
        else:
            cluster = own_cluster(say)
        with cluster as surroundings, proxied(surroundings, SCRATCH) as reachable:
            return play(reachable, options.pytest, only_core=options.core, nights=options.nights)
    except (machine.MachineUnfit, ToolsUnavailable, ImagesUnavailable) as missing:
        say(f"NOT RUN: no cluster can be had here: {missing}")
        return 0
    except (foreign.ClusterUnfit, *EXPECTED) as error:
        say(f"error: {error}")
        return 1


@contextmanager
def own_cluster(announce: Callable[[str], object]) -> Iterator[Surroundings]:
    """The cluster of `make cluster`; it ends with the block if it did not run before."""
    is_new = not one_machine.is_running(background.DIRECTORY)
    # Looking around takes programs, too.
    machine.prepare(announce)
    BEFORE.write_text(json.dumps(traces(background.DIRECTORY)))
    background.up(background.DIRECTORY, announce)
    try:
        yield Surroundings.own(ends_afterwards=is_new)
    finally:
        if is_new:
            one_machine.end(background.DIRECTORY)


def play(surroundings: Surroundings, arguments: list[str], *, only_core: bool = False, nights: bool = False) -> int:
    """The worst exit code of the acts."""
    environment = {**os.environ, VARIABLE: surroundings.to_json()}
    if not arguments and not only_core:
        environment[COMPLETE] = "yes"
    if surroundings.prometheus_url is None:
        say("Prometheus: none is given (E2E_PROMETHEUS_URL)")
    two = ("--numprocesses=2",)
    tests = "e2e and core" if only_core else "e2e"
    acts = (
        ("nobody touches the operator", f"{tests} and not isolated and not ends_operator and not afterwards", two),
        ("the operator is killed", f"{tests} and ends_operator", two),
        ("afterwards", f"{tests} and afterwards and not faults", ()),
    )
    return _play_acts((LONG_NIGHTS,) if nights else acts, environment, arguments)


def _play_acts(acts: Sequence[Act], environment: Mapping[str, str], arguments: list[str]) -> int:
    codes = []
    for title, chosen, how in acts:
        began = time.monotonic()
        say(f"== {title}")
        options = ["-m", chosen, *how, "--durations=15", *arguments]
        command = [sys.executable, "-m", "tools.run_tests", *options, "--", str(FOLDER)]
        code = subprocess.run(command, env=environment, cwd=FOLDER.parents[1]).returncode
        say(f"== {title}: {time.monotonic() - began:.0f} s")
        codes.append(0 if code == NO_TESTS else code)
    return max(codes, key=abs)


def say(line: str) -> None:
    """Prints a line at once."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
