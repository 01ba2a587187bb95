"""Whether anybody answers where a bucket is: a connection, made before the first request.

The libraries ask for a minute and say nothing meanwhile when a name is unknown or no server listens.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from tpujob_contract import storage_address
from tpujob_trainer.errors import brief

GCS = "https://storage.googleapis.com"
GCS_VARIABLES = ("TENSORSTORE_GCS_HTTP_URL", "STORAGE_EMULATOR_HOST")
"""They name another server, an emulator for instance."""
PROXY_VARIABLES = ("https_proxy", "http_proxy", "all_proxy")
CONNECT_SECONDS = 3.0
"""For one try."""
INTERVAL_SECONDS = 1.0
LIMIT_SECONDS = 15.0
"""Name servers and routes of a pod that has just started take a few seconds."""


def wait_until_reachable(
    url: str,
    *,
    notice: Callable[[str | None], None],
    limit_seconds: float = LIMIT_SECONDS,
    wait: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Returns when the server of a bucket takes connections; at once for paths, other storage, and behind a proxy.

    Args:
        url: The bucket or path.
        notice: Is given what hinders, from the first failure on, and None when it is over.
        limit_seconds: From the first failure.
        wait: Waits for so many seconds.
        clock: Seconds, monotonic.

    Raises:
        ConnectionError: no server answered within the limit.
    """
    server = server_of(url)
    if server is None:
        return
    began, tries = clock(), 0
    while True:
        try:
            connect(server)
        except ConnectionError as error:
            tries += 1
            if clock() - began >= limit_seconds:
                raise
            notice(f"{url} cannot be reached for {clock() - began:.0f} s: {error}")
            wait(INTERVAL_SECONDS)
        else:
            break
    if tries:
        notice(None)


def server_of(url: str) -> tuple[str, int] | None:
    """Host and port that answer for `gs://` and `http(s)://`; None for the others, and where they are unknown."""
    names = {name.lower() for name, value in os.environ.items() if value}
    if names & set(PROXY_VARIABLES):
        return None
    if storage_address.is_bucket(url):
        url = next((value for name in GCS_VARIABLES if (value := os.environ.get(name))), GCS)
    endpoint = urlsplit(url)
    if endpoint.scheme not in ("http", "https") or endpoint.hostname is None:
        return None
    return endpoint.hostname, endpoint.port or (443 if endpoint.scheme == "https" else 80)


def connect(server: tuple[str, int]) -> None:
    """Returns when a server takes connections.

    Raises:
        ConnectionError: it does not, or has no address; the text names it and says why.
    """
    try:
        socket.create_connection(server, timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise ConnectionError(f"{server[0]}:{server[1]}: {error.strerror or brief(error)}") from error
