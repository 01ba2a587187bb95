"""Requests to the API server, with one answer or a stream of events. All client exceptions are converted here."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import orjson
from yarl import URL

from tpujob_operator.base import metrics
from tpujob_operator.kube import errors
from tpujob_resource.models.decoding import decoded

type Object = dict[str, Any]
"""A Kubernetes object as decoded JSON."""

PAGE_BYTES = 8 * 2**20
"""Most bytes of a page of a list: decoded, it takes up to 25 times as many. One object has at most 1.5 MiB."""
TIMEOUT = aiohttp.ClientTimeout(total=15, sock_connect=5)
SILENCE_SECONDS = 90.0
"""A stream without a byte for this long is broken: the API server sends a bookmark every minute."""
WATCH_SECONDS = 240
"""After this the API server ends a watch; so one that has failed unnoticed does not last longer."""
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
CONNECTION_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)


class Resource(NamedTuple):
    """A kind of object."""

    api_version: str
    """API group and version, such as `apps/v1`, or `v1`; empty for the list of API groups."""
    plural: str

    @property
    def root(self) -> str:
        """The path of the API group and version."""
        if not self.api_version:
            return ""
        return f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"


class Requests:
    """Sends requests with the credentials of a client, over connections of its own.

    The client's own way of sending walks through every body, and reads ~/.netrc and the proxy variables in threads:
    together that costs more than the rest of a request.
    """

    def __init__(self, client: Any) -> None:
        """`client`: of `kubernetes.aio`; it is closed with this."""
        self._client = client
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Closes the connections."""
        if self._session is not None:
            await self._session.close()
        await self._client.close()

    async def send(
        self,
        method: str,
        resource: Resource,
        namespace: str | None,
        name: str | None = None,
        subresource: str | None = None,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = JSON,
    ) -> Object:
        """Sends a request, and returns the decoded answer.

        Raises:
            TooLarge: a page of a list has more than `PAGE_BYTES`.
            ApiError: the API server refused, or did not answer.
        """
        path = _path(resource, namespace, name if method != "POST" else None, subresource)
        what = describe(method, resource, namespace, name, subresource)
        status = "none"
        try:
            response = await self._open(method, path, query, body, content_type, TIMEOUT)
            status = str(response.status)
            data = await _read(what, response, is_page=(query or {}).get("limit", "1") != "1")
        except CONNECTION_ERRORS as error:
            raise errors.Unavailable(what, None, f"{type(error).__name__}: {error}") from error
        finally:
            metrics.API_REQUESTS.labels(method, resource.plural, status).inc()
        return _decoded(what, response.status, data)

    async def watch(
        self, resource: Resource, namespace: str | None, *, selector: str, version: str
    ) -> AsyncIterator[tuple[str, Object]]:
        """The type and object of each event after a resource version, until the API server ends the stream.

        The first is `OPENED`, without an object: the API server has accepted the watch.

        Raises:
            ApiError: it refused, or the connection broke; `Gone` if it does not know that version any more.
        """
        what = describe("watch", resource, namespace)
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
            "labelSelector": selector,
        }
        limits = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=SILENCE_SECONDS)
        try:
            opened = await self._open("GET", _path(resource, namespace), query, None, JSON, limits)
            async with opened as response:
                if response.status != 200:
                    _decoded(what, response.status, await response.read())
                yield "OPENED", {}
                async for line in lines(response.content):
                    event = _decoded(what, 200, line)
                    if event["type"] == "ERROR":
                        raise _error_of(what, event["object"])
                    yield event["type"], event["object"]
        except CONNECTION_ERRORS as error:
            raise errors.Unavailable(what, None, f"{type(error).__name__}: {error}") from error

    async def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Object | None,
        content_type: str,
        limits: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": JSON, "Content-Type": content_type, **self._client.default_headers}
        await self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        configuration = self._client.configuration
        return await self._opened_session().request(
            method,
            URL(f"{configuration.host}{path}{'?' + urlencode(query) if query else ''}", encoded=True),
            data=None if body is None else encoded(body),
            headers=headers,
            timeout=limits,
            server_hostname=configuration.tls_server_name,
            proxy=configuration.proxy,
            proxy_headers=configuration.proxy_headers,
        )

    def _opened_session(self) -> aiohttp.ClientSession:
        """The session, opened with the first request: it belongs to the loop that runs then."""
        if self._session is None:
            configuration = self._client.configuration
            self._session = aiohttp.ClientSession(
                # Each watch holds a connection, two for each served namespace; queues bound the others.
                connector=aiohttp.TCPConnector(limit=0, ssl=self._client.rest_client.ssl_context),
                cookie_jar=aiohttp.DummyCookieJar(),
                # Checked once, here: a session that trusts the variables reads them for each request.
                trust_env=has_proxy(configuration.host),
            )
        return self._session


def has_proxy(url: str) -> bool:
    """Whether the environment of this process (`https_proxy`, `no_proxy`) sets a proxy for a URL."""
    parts = urlsplit(url)
    return parts.scheme in getproxies() and not proxy_bypass(parts.hostname or "")


def describe(
    method: str, resource: Resource, namespace: str | None, name: str | None = None, subresource: str | None = None
) -> str:
    """A request as errors name it: `get jobsets team/llama`."""
    kind = resource.plural + (f"/{subresource}" if subresource else "")
    return f"{method.lower()} {kind} {namespace or '*'}/{name or ''}"


def _path(resource: Resource, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
    parts = [resource.root, *(["namespaces", quote(namespace)] if namespace else []), resource.plural]
    if name is not None:
        parts += [quote(name), *([subresource] if subresource else [])]
    return "/".join(parts)


async def _read(what: str, response: aiohttp.ClientResponse, *, is_page: bool) -> bytes:
    async with response:
        if not is_page:
            return await response.read()
        pieces, size = list[bytes](), 0
        async for piece in response.content.iter_any():
            pieces.append(piece)
            size += len(piece)
            if size > PAGE_BYTES:
                response.close()
                raise errors.TooLarge(what, response.status, f"a page of more than {PAGE_BYTES} bytes")
        return b"".join(pieces)


async def lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a stream; an object may be longer than the line limit of the reader."""
    rest = bytearray()
    async for piece in content.iter_any():
        rest += piece
        if b"\n" in piece:
            *whole, last = bytes(rest).split(b"\n")
            rest = bytearray(last)
            for line in whole:
                if line:
                    yield line


def encoded(body: Object) -> bytes:
    """An object as JSON."""
    try:
        return orjson.dumps(body)
    except TypeError:
        return json.dumps(body).encode()  # with an integer of more than 64 bits


def _decoded(what: str, status: int, data: bytes) -> Object:
    try:
        answer: Any = decoded(data, orjson.loads)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        # Not from the API server, but from a proxy before it; or the API server is shutting down.
        kind = errors.NotServed if status == 404 else errors.Unavailable
        raise kind(what, status, data[:200].decode(errors="replace"))
    if status >= 400:
        raise _error_of(what, answer, status)
    return answer


def _error_of(what: str, status: Mapping[str, Any], http_status: int = 500) -> errors.ApiError:
    code = status.get("code")
    known = code if type(code) is int and code else http_status
    return errors.from_status(what, known, status.get("reason") or "", status.get("message") or "")
