"""HTTP requests to servers that a test started on this machine."""

import urllib.error
import urllib.request
from typing import Any

_OPENER = urllib.request.OpenerDirector()
for _handler in (
    urllib.request.HTTPHandler(),
    urllib.request.UnknownHandler(),
    urllib.request.HTTPDefaultErrorHandler(),
    urllib.request.HTTPErrorProcessor(),
):
    _OPENER.add_handler(_handler)


def opened(request: str | urllib.request.Request, *, timeout_seconds: float = 30) -> Any:
    """The response, which the caller closes.

    Plain HTTP only: it uses no proxy of the user's environment, and no HTTPS, for which `build_opener` reads all of the
    machine's certificates: 40 ms of processor time, for each request of callers that poll.

    Raises:
        urllib.error.HTTPError: The response is an error.
        urllib.error.URLError: No server responds.
    """
    return _OPENER.open(request, timeout=timeout_seconds)


def answers(url: str) -> bool:
    """Whether the response to a GET has status 200."""
    try:
        with opened(url, timeout_seconds=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
