"""What every test needs: the harness's fixtures, and an account of what could not run as the last thing printed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest
from xdist.remote import Producer

from tests import quick_compiling
from tests.division import CONTROL_PLANE, GroupScheduling, group
from tests.fakes import Clock
from tools import test_costs
from tools.localcluster.processes import choose_ports_of_part
from tpujob_launcher.supervise.processes import command_line

# Under nohup, or in the background of a shell, these are ignored, and every process that is started here inherits it.
# A handler of ours is not inherited, so what is started here begins as in a terminal.
for _number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)

# JAX reads these when it is imported, which any test file may do: eight CPU devices for all of them.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUM_CPU_DEVICES"] = "8"
os.environ["XLA_FLAGS"] = quick_compiling.XLA_FLAGS

# The same examples in every run, so that a run judges the code and not its luck, and no limit for one of them on a busy
# machine. HYPOTHESIS_PROFILE=search draws others.
_slow = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True, suppress_health_check=_slow)
hypothesis.settings.register_profile("search", deadline=None, suppress_health_check=_slow)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

LEAVING_SECONDS = 60.0
"""For a process that was told to end."""

pytest_plugins = ["tests.scenes.control_plane.fixtures"]

# What one worker of xdist has chosen, and not yet bound, another one does not choose.
choose_ports_of_part(
    int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")),
    int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")),
)


@pytest.fixture(scope="session")
def custom_resources() -> list[Path]:
    """What the control plane of the tests knows beside JobSet's resources."""
    return [Path(__file__).parents[1] / "charts" / "tpujob-operator" / "crd"]


@pytest.fixture
def clock() -> Clock:
    """Time that passes when the test says so."""
    return Clock()


@pytest.fixture(autouse=True)
def children_end_with_their_test() -> Iterator[None]:
    """Fails a test that leaves a process behind: one that it started itself, and not a fixture of a wider scope."""
    before = _children()
    yield
    left = _children() - before
    deadline = time.monotonic() + LEAVING_SECONDS
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left &= _children()
    if left:
        pytest.fail("left running: " + "; ".join(f"{pid}: {command_line(pid)}" for pid in sorted(left)))


def _children() -> set[int]:
    """Living processes that this one has started; helpers of multiprocessing live as long as it does."""
    found: set[int] = set()
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return found  # most tests have none, and a file for each thread says it more slowly
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found.update(map(int, path.read_text().split()))
    return {pid for pid in found if _runs(pid) and "multiprocessing" not in command_line(pid)}


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


_used = test_costs.used()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """What was built and imported before the first test is not a test's cost."""
    global _used
    _used = test_costs.used()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attaches what this phase of the test cost."""
    global _used
    report = yield
    before, _used = _used, test_costs.used()
    report.user_properties.append((test_costs.PROPERTY, _used - before))
    return report


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    """Whichever is asked for: others would take scenarios apart."""
    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps the workers busy to the end: what is long comes first.

    The control plane's tests, which mostly wait, are two workers', while the others begin with those that start many
    processes.
    """

    def order(item: pytest.Item) -> int:
        if group(item.nodeid).startswith(CONTROL_PLANE):
            return 0
        return 1 if item.get_closest_marker("processes") else 2

    items.sort(key=order)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    skipped: dict[str, list[str]] = {}
    for report in reporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        skipped.setdefault(reason.removeprefix("Skipped: "), []).append(report.nodeid)
    for reason, tests in skipped.items():
        reporter.write_line(f"NOT RUN: {len(tests)} tests ({tests[0]}{', …' if len(tests) > 1 else ''}): {reason}")
