"""Checks that the server of a bucket is reachable, by a connection before the first request.

When a name is unknown or no server listens, the libraries retry for a minute without a message.
"""

import os
import socket
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from tpujob_contract import storage_address
from tpujob_trainer.values.errors import brief

GCS = "https://storage.googleapis.com"
GCS_VARIABLES = ("TENSORSTORE_GCS_HTTP_URL", "STORAGE_EMULATOR_HOST")
"""Environment variables that name another server, for example an emulator."""
PROXY_VARIABLES = ("https_proxy", "http_proxy", "all_proxy")
CONNECT_SECONDS = 3.0
"""Timeout of one try."""
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
    """Returns when the server of a bucket accepts connections; at once for paths, other storage, and behind a proxy.

    Args:
        url: The bucket or path.
        notice: Called with the problem at each failure, and with None when a connection succeeds after failures.
        limit_seconds: From the call until it gives up.
        wait: Sleeps for a number of seconds.
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
    """Host and port of the server for `gs://` and `http(s)://`; None: another address, or a proxy is set."""
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
    """Returns when a server accepts a connection.

    Raises:
        ConnectionError: it does not, or its name does not resolve; the message names the server and the reason.
    """
    try:
        socket.create_connection(server, timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise ConnectionError(f"{server[0]}:{server[1]}: {error.strerror or brief(error)}") from error
