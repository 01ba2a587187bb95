"""What the tests need: the surroundings that `python -m tests.e2e` prepared, a namespace each, a text to train on.

They change a machine or somebody's cluster and take minutes, so they run only where they are asked for: `make e2e`.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e.jobs import DATA, Jobs, jobs_in_namespace
from tests.e2e.surroundings import Surroundings
from tools.localcluster.client import Client

DOCUMENTS = tuple(f"{number:03d} is one document of thirty." for number in range(64))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts long scenarios before the many short tests that fill two workers evenly; what ends the cluster is last."""
    order = {
        "test_alerts.py": 0,
        "test_training.py": 0,
        "test_quickstart.py": 1,
        "test_upgrade.py": 3,
        "test_machine.py": 4,
    }
    items.sort(key=lambda item: order.get(item.path.name, 2))


@pytest.fixture(scope="session")
def surroundings() -> Surroundings:
    """Where the tests are played; skips them where nothing is prepared."""
    found = Surroundings.handed_over()
    if found is None:
        pytest.skip("no cluster is up: `make cluster`, or `make e2e`, which brings its own")
    return found


@pytest.fixture(scope="session")
def cluster(surroundings: Surroundings) -> Client:
    """The cluster's kubectl and Helm."""
    return surroundings.client


@pytest.fixture(scope="session")
def text(surroundings: Surroundings) -> str:
    """Where the jobs find a small text, in the bucket."""
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": DOCUMENTS}), buffer, row_group_size=4)
    surroundings.storage.write(f"{DATA}/text.parquet", buffer.getvalue().to_pybytes())
    return f"gs://{surroundings.bucket}/{DATA}/*.parquet"


@pytest.fixture
def namespace_labels() -> dict[str, str]:
    """Labels of the test's namespace; override to enforce something."""
    return {}


@pytest.fixture
def jobs(
    surroundings: Surroundings, text: str, request: pytest.FixtureRequest, namespace_labels: dict[str, str]
) -> Iterator[Jobs]:
    """Jobs in a namespace of the test's own, which goes afterwards."""
    with jobs_in_namespace(surroundings, text, request.node.name, namespace_labels) as made:
        yield made
