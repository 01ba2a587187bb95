"""Runs pytest, and reruns each failed test alone: a test that passes then is flaky, and does not fail the run.

python -m tools.run_tests [OPTION OF PYTEST ...] [-- PATH ...]

At the end stands what the tests cost (tools/test_costs.py); KEEP=1 keeps it in tests/costs.toml.

A test that fails twice fails the run, and so does one that is skipped the second time. Paths follow `--`, so that the
second run of a test is of that test only. If more than MOST_RETRIED tests fail, none is rerun, because that many are
not flaky.
"""

import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools import test_costs

MOST_RETRIED = 20
FLAKY = Path(__file__).parents[1] / "tests" / "flaky.toml"


class Failures:
    """A pytest plugin that keeps the ids of failed tests, in the order in which they failed."""

    def __init__(self) -> None:
        self.tests: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.tests[report.nodeid] = None


def main(arguments: Sequence[str]) -> int:
    """The exit code of pytest; 0 if each failed test passed when it was run again."""
    options, paths = list(arguments), []
    if "--" in options:
        split = options.index("--")
        options, paths = options[:split], options[split + 1 :]
    failures, account, environment = Failures(), test_costs.Account(), dict(os.environ)
    code = int(pytest.main([*options, *paths], plugins=[failures, account]))
    for line in test_costs.table(account.tests, test_costs.kept()):
        say(line)
    if environment.get("KEEP"):
        test_costs.keep(account.files)
    # Other codes (interrupted, wrong usage, a file that cannot be imported) do not come from a test.
    if code != pytest.ExitCode.TESTS_FAILED or not failures.tests:
        return code
    if len(failures.tests) > MOST_RETRIED:
        say(f"{len(failures.tests)} tests failed; up to {MOST_RETRIED} are run again, so none is")
        return code
    flaky = [test for test in failures.tests if passes_alone(test, options, environment)]
    failed = [test for test in failures.tests if test not in flaky]
    for test in flaky:
        say(f"FLAKY: {test}: failed in the run, passed alone; {known(test)}")
    for test in failed:
        say(f"FAILED TWICE: {test}")
    return code if failed else 0


def passes_alone(test: str, options: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a test passes in a new process, which inherits `environment` and nothing of the run."""
    say(f"== again, alone: {test}")
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch) / "results.xml"
        # The format that supports the fixture `record_property`.
        junit = ("--override-ini=junit_family=xunit1", f"--junitxml={results}")
        command = [sys.executable, "-m", "pytest", *options, "--numprocesses=0", *junit, test]
        if subprocess.run(command, env=environment).returncode != 0:
            return False
        return ElementTree.parse(results).find(".//skipped") is None  # noqa: S314, written by pytest


def known(test: str) -> str:
    """What tests/flaky.toml says of the file of a test."""
    found = tomllib.loads(FLAKY.read_text())["tests"].get(test.partition("::")[0])
    return f"seen {found['seen']}: {found['cause']}" if found else f"add it to tests/{FLAKY.name}"


def say(line: str) -> None:
    """Prints a line and flushes it, so that it follows pytest's output."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
