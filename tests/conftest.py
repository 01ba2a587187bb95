"""What every test needs: the harness's fixtures, and an account of what could not run as the last thing printed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from xdist.remote import Producer

from tests.division import CONTROL_PLANE, GroupScheduling, group

# Under nohup, or in the background of a shell, these are ignored, and every process that is started here inherits it.
# A handler of ours is not inherited, so what is started here begins as in a terminal.
for _number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)

pytest_plugins = ["tests.control_plane.fixtures"]


@pytest.fixture(scope="session")
def custom_resources() -> list[Path]:
    """What the control plane of the tests knows beside JobSet's resources."""
    return [Path(__file__).parents[1] / "charts" / "tpujob-operator" / "crd"]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    """Whichever is asked for: others would take stories apart."""
    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps two workers busy to the end: what is long comes first.

    The control plane's tests, which mostly wait, are one worker's, while the other begins with those that start many
    processes.
    """

    def order(item: pytest.Item) -> int:
        if group(item.nodeid) == CONTROL_PLANE:
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
