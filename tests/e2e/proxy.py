"""A `kubectl proxy`: by it the tests look at a cluster without a kubectl for every look."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.e2e.surroundings import Surroundings
from tools.localcluster.plain_http import answers
from tools.localcluster.processes import Process, free_ports


@contextmanager
def proxied(surroundings: Surroundings, scratch: Path) -> Iterator[Surroundings]:
    """The surroundings with a proxy, for as long as the block runs."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    client = surroundings.client
    command: list[str | Path] = [client.program("kubectl"), "proxy", f"--port={port}", "--address=127.0.0.1"]
    process = Process("kubectl proxy", command, scratch / "proxy.log", environment=client.environment)
    try:
        process.wait_until_ready("kubectl proxy", lambda: answers(f"{url}/readyz"))
        yield replace(surroundings, proxy_url=url)
    finally:
        process.stop()
