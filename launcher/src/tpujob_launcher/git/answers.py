"""The answers of a git server: closed together, and what they say of errors."""

from __future__ import annotations

import time
from typing import Any

import urllib3
from dulwich.client import default_urllib3_manager

from tpujob_contract import ExitCode
from tpujob_launcher.code.archive import CodeRefused

LONGEST_SECONDS = 600
"""For a whole commit: accelerators wait for it."""
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
"""urllib3's own would try four times each, and sleep as long as a server says (Retry-After)."""


class Answers:
    """Stands for a pool of connections, as far as dulwich uses one.

    dulwich leaves answers open that it does not read to the end, and takes the packet of an error in place of a pack
    (gitprotocol-pack, `error-line`) for a connection that was cut. What is no answer of a git server, such as a page to
    sign in, it takes for the files of a repository (gitprotocol-http, "dumb").
    """

    def __init__(self, address: str) -> None:
        """Sends nothing yet. A proxy is taken from the usual environment variables."""
        self._address = address
        self._pool = default_urllib3_manager(None, base_url=address)
        self.headers = self._pool.headers
        self._open: list[urllib3.BaseHTTPResponse] = []
        self._head = b""
        self._ends = time.monotonic() + LONGEST_SECONDS

    @property
    def error(self) -> str | None:
        """What the server says in the last answer is wrong."""
        _, found, words = self._head.partition(_ERROR)
        return words.decode(errors="replace").strip() if found else None

    def request(self, method: str, url: str, **options: Any) -> urllib3.BaseHTTPResponse:
        """As urllib3's own.

        Raises:
            CodeRefused: the server is no git server.
            OSError: by `read` of what is returned: it takes too long in all.
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
