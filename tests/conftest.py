"""What every test needs: the harness's fixtures, and an account of what could not run as the last thing printed."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["tests.cluster.fixtures"]


@pytest.fixture(scope="session")
def custom_resources() -> list[Path]:
    """What the control plane of the tests knows beside JobSet's resources."""
    return [Path(__file__).parents[1] / "charts" / "tpujob-operator" / "crd"]


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
