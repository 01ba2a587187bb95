"""The responses of a git server: closes them together, checks their type, and finds the server's error messages."""

from __future__ import annotations

import time
from typing import Any

import urllib3
from dulwich.client import default_urllib3_manager

from tpujob_contract import ExitCode
from tpujob_launcher.code.archive import CodeRefused

LONGEST_SECONDS = 600
"""Limit for a whole commit, because accelerators wait for it."""
_ERROR = b"ERR "
_HEAD_BYTES = 512
_KIND = "application/x-git-"
_LONGEST_PAUSE_SECONDS = 60
_ONCE = urllib3.Retry(
    connect=0,
    read=0,
    other=0,
    redirect=5,
    status=1,
    raise_on_status=False,
    retry_after_max=_LONGEST_PAUSE_SECONDS,
)
"""urllib3's default would try each request four times, and sleep as long as a server asks (Retry-After)."""


class Answers:
    """A replacement for the urllib3 connection pool of dulwich, with the methods that dulwich uses.

    dulwich does not close responses that it does not read to the end, and treats an error packet instead of a pack
    (gitprotocol-pack, `error-line`) as a lost connection. A response that is not of a git server, such as a sign-in
    page, it treats as the files of a repository (gitprotocol-http, "dumb").
    """

    def __init__(self, address: str) -> None:
        """Sends no request yet. A proxy is taken from the usual environment variables."""
        self._address = address
        self._pool = default_urllib3_manager(None, base_url=address)
        self.headers = self._pool.headers
        self._open: list[urllib3.BaseHTTPResponse] = []
        self._head = b""
        self._ends = time.monotonic() + LONGEST_SECONDS

    @property
    def error(self) -> str | None:
        """The error message in the server's last response; None: there is none."""
        _, found, words = self._head.partition(_ERROR)
        return words.decode(errors="replace").strip() if found else None

    def request(self, method: str, url: str, **options: Any) -> urllib3.BaseHTTPResponse:
        """Sends a request, as urllib3's own method does.

        Raises:
            CodeRefused: The server is not a git server.
            OSError: Raised by `read` of the response if all requests together take too long.
        """
        self._head = b""
        answer = self._pool.request(method, url, retries=_ONCE, **options)
        self._open.append(answer)
        self._check_kind(answer)
        read = answer.read

        def kept(*sizes: Any, **more: Any) -> bytes:
            data = read(*sizes, **more)
            if time.monotonic() > self._ends:
                raise OSError(f"{self._address} sent for {LONGEST_SECONDS} s and is not done")
            self._head = (self._head + data)[:_HEAD_BYTES] if len(self._head) < _HEAD_BYTES else self._head
            return data

        answer.read = kept  # type: ignore[method-assign]
        return answer

    def close(self) -> None:
        for answer in self._open:
            answer.close()
        self._pool.clear()

    def _check_kind(self, answer: urllib3.BaseHTTPResponse) -> None:
        kind = answer.headers.get("Content-Type", "no Content-Type")
        if answer.status == 200 and not kind.startswith(_KIND):
            raise CodeRefused(
                f"spec.code.repository: {self._address} is answered with {kind!r}, which is not git's protocol; "
                "correct the address (a private repository may answer with a page to sign in)",
                ExitCode.NOT_FOUND,
            )
