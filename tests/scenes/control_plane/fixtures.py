"""Fixtures of tests against the real control plane, for `pytest_plugins` in the top conftest.

One control plane with JobSet serves the whole test session; each test takes a namespace of its own.
"""

import logging
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.localcluster import binaries
from tools.localcluster.api import Api, ApiError
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.jobset import JobSetController, jobset_custom_resources
from tools.localcluster.toolchain import ToolBuildError, ToolsUnavailable

logger = logging.getLogger(__name__)

NAMESPACE_NAME_LENGTH = 63
PROGRAMS = {
    "control_plane": binaries.CONTROL_PLANE,
    "scheduled": (*binaries.CONTROL_PLANE, "kube-scheduler"),
    "queues": (*binaries.CONTROL_PLANE, *binaries.QUEUE),
    "recorded_week": ("promtool", "prometheus"),
    "monitoring": ("prometheus",),
}
"""Fixtures and marks, and what they start."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds what the chosen tests need before the first of them: a cold build takes longer than any test may."""
    used = {name for item in session.items for name in _names(item)} & PROGRAMS.keys()
    if used and not session.config.option.collectonly:
        try:
            programs = dict.fromkeys(program for name in sorted(used) for program in PROGRAMS[name])
            binaries.build_all(_line_writer(session), list(programs))
        except (ToolsUnavailable, ToolBuildError):
            return  # the fixture says it, to the tests that need it and no others


def _names(item: pytest.Item) -> list[str]:
    return [*getattr(item, "fixturenames", ()), *(mark.name for mark in item.iter_markers())]


def _line_writer(session: pytest.Session) -> Callable[[str], None]:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    return reporter.write_line if reporter is not None else print


@pytest.fixture(scope="session")
def custom_resources() -> list[Path]:
    """Files or folders of CustomResourceDefinitions to start with, besides JobSet's; override to add some."""
    return []


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory, custom_resources: list[Path]) -> Iterator[ControlPlane]:
    """A control plane with the JobSet controller; skips the test where its programs cannot be had."""
    try:
        binaries.build_all(logger.info)
    except ToolsUnavailable as reason:
        pytest.skip(f"no control plane: {reason}")
    directory = tmp_path_factory.mktemp("control-plane")
    with (
        ControlPlane(directory, custom_resources=[jobset_custom_resources(), *custom_resources]) as plane,
        JobSetController(plane),
    ):
        yield plane


@pytest.fixture
def api(control_plane: ControlPlane) -> Api:
    """The control plane's API as the admin sees it."""
    return control_plane.api


@pytest.fixture
def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a fresh namespace, called after the test so that logs tell; deleted afterwards in the background."""
    readable = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).removeprefix("test-")
    suffix = secrets.token_hex(3)
    name = f"{readable[: NAMESPACE_NAME_LENGTH - len(suffix) - 1].strip('-')}-{suffix}"
    control_plane.create_namespace(name)
    yield name
    try:
        control_plane.api.delete(f"/api/v1/namespaces/{name}")
    except ApiError as error:
        if error.status != 404:  # a test may have deleted it
            raise
