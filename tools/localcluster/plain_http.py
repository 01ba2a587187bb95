"""HTTP to servers that a test started on this machine."""

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
    """The answer, to be closed.

    Nothing but plain HTTP: no proxy of the user's environment, and no HTTPS, for which `build_opener` reads all of the
    machine's certificates, 40 ms of a processor that those who poll would spend on each look.

    Raises:
        urllib.error.HTTPError: The answer is an error.
        urllib.error.URLError: No server answers.
    """
    return _OPENER.open(request, timeout=timeout_seconds)


def answers(url: str) -> bool:
    """Whether a GET is answered with success."""
    try:
        with opened(url, timeout_seconds=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
