"""Errors of requests to the API server, and delays before retries. The class of an error says whether a retry helps."""

import random


class ApiError(Exception):
    """A request that the API server refused or did not answer: the request, the status and the message."""

    def __init__(self, request: str, status: int | None, message: str) -> None:
        """Keeps the parts.

        Args:
            request: Verb, kind and namespace/name, e.g. `create jobsets default/llama`.
            status: The HTTP status; None: there was no answer.
            message: The server's, or the connection's.
        """
        super().__init__(f"{request}: {status or 'no answer'}: {message}")
        self.request = request
        self.status = status
        self.message = message


class Unavailable(ApiError):  # noqa: N818
    """No answer, 401, 429 or 5xx: the same request will work later."""


class NotServed(Unavailable):
    """404 in plain text, as the API server answers for an API group that no CRD and no aggregated server provides.

    Proxies before it may answer the same, so nothing may be taken for deleted because of it.
    """


class Forbidden(ApiError):  # noqa: N818
    """403. Rights are missing, or (during upgrades of the control plane) not known yet."""


class NotFound(ApiError):  # noqa: N818
    """404: no such object, or no such kind."""


class AlreadyExists(ApiError):  # noqa: N818
    """A create found the name taken."""


class Conflict(ApiError):  # noqa: N818
    """A precondition (resource version, uid) does not hold any more: read again, decide again."""


class Gone(ApiError):  # noqa: N818
    """410: the API server does not know that resource version, or that place in a list, any more: list again."""


class TooLarge(ApiError):  # noqa: N818
    """A page of a list is too large to be kept: ask for fewer objects."""


class Rejected(ApiError):  # noqa: N818
    """The object is not accepted (schema, webhook, quota); a retry does not help until something changes."""


def from_status(request: str, status: int, reason: str, message: str) -> ApiError:
    """The error for an answer of the API server; `reason` is that of its Status, such as AlreadyExists."""
    if reason == "AlreadyExists":
        return AlreadyExists(request, status, message)
    by_status = {401: Unavailable, 403: Forbidden, 404: NotFound, 409: Conflict, 410: Gone, 429: Unavailable}
    kind = by_status.get(status, Unavailable if status >= 500 else Rejected)
    return kind(request, status, message)


FIRST_DELAY = 0.5
LONGEST_DELAY = 300.0
_random = random.SystemRandom()


def backoff_seconds(failures: int, *, first: float = FIRST_DELAY, longest: float = LONGEST_DELAY) -> float:
    """The delay after this number of failures in a row: doubles from `first` to `longest`, with ±50 % jitter."""
    delay = min(longest, first * 2.0 ** min(failures - 1, 30))
    return delay * _random.uniform(0.5, 1.5)
