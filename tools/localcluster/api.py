"""The Kubernetes API as plain JSON: the harness and its tests read the objects, not a client library's model."""

import copy
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

TIMEOUT_SECONDS = 30

type Object = dict[str, Any]
"""A Kubernetes object as decoded JSON."""

MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class ApiError(Exception):
    """The API server refused a request."""

    def __init__(self, request: str, status: int, reason: str, message: str) -> None:
        """Keeps the parts; `reason` is the API's reason, such as NotFound."""
        super().__init__(f"{request}: {status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class Api:
    """Requests to one API server as one user."""

    def __init__(self, url: str, *, token: str, ca_file: Path) -> None:
        """Keeps address and credentials; connects on each request."""
        self.url = url
        self._acting_as: dict[str, str] = {}
        self._token = token
        context = ssl.create_default_context(cafile=str(ca_file))
        # The empty proxy handler keeps a proxy of the user's environment out of calls to loopback.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def acting_as(self, user: str) -> Self:
        """The same API as another user, without groups; the user of this object must be allowed to impersonate."""
        other = copy.copy(self)
        other._acting_as = {"Impersonate-User": user}
        return other

    def request(self, method: str, path: str, body: object = None, *, content_type: str = "application/json") -> Object:
        """Returns the decoded response.

        Args:
            method: The HTTP method.
            path: Path and query, e.g. `/api/v1/namespaces/default/pods?limit=1`.
            body: Sent as JSON unless None.
            content_type: Of the body; for a patch, its kind.

        Raises:
            ApiError: The API server responded with an error.
            urllib.error.URLError: It did not respond.
        """
        with self._open(method, path, body, content_type) as answer:
            decoded: Object = json.load(answer)
            return decoded

    def text(self, path: str) -> str:
        """The undecoded response to a GET, for paths such as /readyz."""
        with self._open("GET", path, None, "application/json") as answer:
            text: str = answer.read().decode()
            return text

    def lines(self, path: str) -> Iterator[bytes]:
        """The lines of the response to a GET as they arrive, such as the events of a watch."""
        with self._open("GET", path, None, "application/json") as answer:
            yield from answer

    def get(self, path: str) -> Object:
        """The object, or the list, at a path."""
        return self.request("GET", path)

    def items(self, path: str) -> list[Object]:
        """The items at a path."""
        items: list[Object] = self.request("GET", path)["items"]
        return items

    def create(self, path: str, body: Object) -> Object:
        """Creates an object in the collection at a path."""
        return self.request("POST", path, body)

    def patch(self, path: str, body: Object) -> Object:
        """Merges the body into the object at a path."""
        return self.request("PATCH", path, body, content_type=MERGE_PATCH)

    def delete(self, path: str, body: Object | None = None) -> Object:
        """Deletes the object, or the collection, at a path; the body may hold DeleteOptions."""
        return self.request("DELETE", path, body)

    def _open(self, method: str, path: str, body: object, content_type: str) -> Any:
        request = urllib.request.Request(  # noqa: S310 - the address is the control plane's
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={
                "Accept": "application/json",
                "Authorization": f"Bearer {self._token}",
                "Content-Type": content_type,
                "User-Agent": "tools/localcluster",
                **self._acting_as,
            },
        )
        try:
            return self._opener.open(request, timeout=TIMEOUT_SECONDS)
        except urllib.error.HTTPError as error:
            with error:
                raise _api_error(f"{method} {path}", error.code, error.read().decode(errors="replace")) from error


def _api_error(request: str, status: int, answer: str) -> ApiError:
    try:
        decoded = json.loads(answer)
        return ApiError(request, status, decoded.get("reason", ""), decoded.get("message", ""))
    except ValueError:
        return ApiError(request, status, "", answer)
