"""A proxy before the API server that can be told to misbehave: plain HTTP on our side, the real server on the other."""

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.fakes import Exchange, HttpServer
from tools.localcluster.control_plane import ControlPlane

HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "host"}


@dataclass(frozen=True)
class Passing:
    """A request on its way through."""

    method: str
    path: str
    """With the query, percent-decoded."""
    body: bytes

    @property
    def is_watch(self) -> bool:
        """Whether the answer is a stream of events."""
        return "watch=true" in self.path

    def concerns(self, name: str) -> bool:
        """Whether an object of this name is meant."""
        return name in self.path or f'"{name}"'.encode() in self.body


class Proxy:
    """Passes everything on, unless told otherwise.

    Attributes:
        answered: Called when the API server has answered a request, before the answer is passed on.
        refuse: A status with which every new request is answered instead; None passes them on.
        silent: Whether new watches are accepted, and then show nothing.
    """

    def __init__(self, plane: ControlPlane) -> None:
        """Describes the proxy; `serving` runs it."""
        self._upstream = urlsplit(plane.url)
        self._tls = ssl.create_default_context(cafile=str(plane.ca_file))
        self.answered: Callable[[Passing], None] = lambda passing: None
        self.refuse: int | None = None
        self.silent = False
        self._streams: set[Any] = set()
        self._lock = threading.Lock()
        self._server = HttpServer(self._pass)
        self.url = self._server.url

    @contextmanager
    def serving(self) -> Iterator["Proxy"]:
        """Serves while the block runs."""
        try:
            yield self
        finally:
            self.end_watches()
            self._server.close()

    @property
    def open_watches(self) -> int:
        """How many watches are open."""
        with self._lock:
            return len(self._streams)

    def end_watches(self, last_event: bytes = b"") -> int:
        """Ends all watches, after sending a last event if one is given; returns how many there were."""
        with self._lock:
            streams = list(self._streams)
        for handler, upstream in streams:
            with contextlib.suppress(OSError, ValueError):
                if last_event:
                    _write_chunk(handler, last_event)
                    _write_chunk(handler, b"")
                handler.connection.shutdown(socket.SHUT_RDWR)
            # A client that was killed does not end what it asked for, and the API server would wait for it at its own
            # end. Where the client has gone in this moment, it is closed already.
            if (connection := upstream.sock) is not None:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        return len(streams)

    def _pass(self, handler: Exchange) -> None:
        passing = Passing(handler.command, unquote(handler.path), handler.content)
        if self.refuse is not None:
            self._refuse(handler, self.refuse)
            return
        upstream = http.client.HTTPSConnection(str(self._upstream.hostname), self._upstream.port, context=self._tls)
        try:
            headers = {key: value for key, value in handler.headers.items() if key.lower() not in HOP_BY_HOP}
            upstream.request(handler.command, handler.path, body=passing.body or None, headers=headers)
            answer = upstream.getresponse()
            if passing.is_watch:
                self._stream(handler, upstream, answer)
            else:
                body = answer.read()
                self.answered(passing)
                passed = {key: value for key, value in answer.getheaders() if key.lower() not in HOP_BY_HOP}
                handler.reply(answer.status, body, passed)
        finally:
            upstream.close()

    def _stream(self, handler: Exchange, upstream: Any, answer: http.client.HTTPResponse) -> None:
        handler.send_response(answer.status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.close_connection = True
        with self._lock:
            self._streams.add((handler, upstream))
        try:
            silent = self.silent
            while data := answer.read1(65536):
                if not silent:
                    _write_chunk(handler, data)
            _write_chunk(handler, b"")
        finally:
            with self._lock:
                self._streams.discard((handler, upstream))

    def _refuse(self, handler: Exchange, status: int) -> None:
        body = b'{"kind":"Status","status":"Failure","reason":"Injected","message":"by the test","code":%d}' % status
        handler.reply(status, body, {"Content-Type": "application/json"})


def _write_chunk(handler: Exchange, data: bytes) -> None:
    handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
    handler.wfile.flush()
