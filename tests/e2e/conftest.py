"""A cluster with a node for the tests here: the one that is up, else one that ends with the tests.

They change the machine and take many minutes, so they run only where they are asked for: `pytest -m e2e tests/e2e`.
"""

import re
import secrets
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cluster import background, machine, one_machine, storage
from tests.cluster.client import Client
from tests.cluster.toolchain import ToolsUnavailable
from tests.cluster.waiting import wait_for
from tests.e2e.jobs import DATA, Jobs

STARTED = pytest.StashKey[bool]()
UNAVAILABLE = pytest.StashKey[str]()
NAMESPACE_NAME_LENGTH = 50
DOCUMENTS = tuple(f"{number:03d} is one document of thirty." for number in range(64))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the look back at what the operator asked for behind all scenes."""
    items.sort(key=lambda item: item.path.name == "test_rights.py")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Starts the cluster before the first test: a cold build takes longer than any test may."""
    chosen = [item for item in session.items if "cluster" in getattr(item, "fixturenames", ())]
    if not chosen or session.config.option.collectonly:
        return
    stash = session.config.stash
    reason = machine.why_unfit()
    if reason is not None:
        stash[UNAVAILABLE] = reason
        return
    stash[STARTED] = not one_machine.is_running(background.DIRECTORY)
    try:
        background.up(background.DIRECTORY, _line_writer(session))
    except (machine.MachineUnfit, ToolsUnavailable) as missing:
        stash[UNAVAILABLE] = str(missing)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.stash.get(STARTED, False):
        one_machine.end(background.DIRECTORY)


def _line_writer(session: pytest.Session) -> Callable[[str], object]:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    return reporter.write_line if reporter is not None else print


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Client:
    """A cluster that runs this checkout's operator; skips the test where there can be none."""
    reason = request.config.stash.get(UNAVAILABLE, None)
    if reason is not None:
        pytest.skip(f"no cluster: {reason}")
    return Client(background.DIRECTORY / "kubeconfig")


@pytest.fixture(scope="session")
def text(cluster: Client) -> str:
    """Where the jobs of these tests find a small text, in the bucket."""
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": DOCUMENTS}), buffer, row_group_size=4)
    storage.write(f"{DATA}/text.parquet", buffer.getvalue().to_pybytes())
    return f"gs://{storage.BUCKET}/{DATA}/*.parquet"


@pytest.fixture
def namespace_labels() -> dict[str, str]:
    """Labels of the test's namespace; override to enforce something."""
    return {}


@pytest.fixture
def jobs(
    cluster: Client, text: str, request: pytest.FixtureRequest, namespace_labels: dict[str, str]
) -> Iterator[Jobs]:
    """Jobs in a namespace of the test's own, which goes afterwards."""
    readable = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).removeprefix("test-")
    name = f"{readable[:NAMESPACE_NAME_LENGTH].strip('-')}-{secrets.token_hex(2)}"
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": namespace_labels}})
    wait_for("the default service account", lambda: cluster.get("serviceaccount", "default", name))
    yield Jobs(cluster, name, text)
    # Awaited: what still runs would take the processor, or the exclusive use of the node pool, from the next test.
    cluster.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=150s")
