"""A real git server on loopback: `git http-backend` behind TLS, and repositories made with git itself."""

from __future__ import annotations

import http.server
import os
import ssl
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tools.localcluster.certificates import CertificateAuthority

AUTHOR = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.com",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


def git(folder: Path, *arguments: str, given: bytes = b"") -> str:
    """What git prints."""
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], env=os.environ | AUTHOR, input=given, check=True, capture_output=True
    )
    return done.stdout.decode().strip()


def commit(folder: Path, files: Mapping[str, str | bytes]) -> str:
    """Commits these files, text that starts with -> as a link; the commit's id."""
    if not (folder / ".git").exists():
        folder.mkdir(parents=True, exist_ok=True)
        git(folder, "init", "--quiet")
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str) and content.startswith("->"):
            path.symlink_to(content.removeprefix("->"))
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "change")
    return git(folder, "rev-parse", "HEAD")


class GitServer:
    """The repositories below a folder, at https://127.0.0.1:PORT; those below `private` want a password."""

    def __init__(self, folder: Path, certificates: Path) -> None:
        authority = CertificateAuthority(certificates)
        authority.issue(certificates / "server.crt", certificates / "server.key", dns_names=[], addresses=["127.0.0.1"])
        self.authority_file = authority.certificate_file
        self.requests: list[str] = []
        """Paths that were asked for."""
        self.fail_next = 0
        """So many requests are answered with 503."""
        self.instead: tuple[str, str] | None = None
        """A commit that is asked for, and the one that is sent in its place."""
        self.changes: Callable[[dict[str, str], bytes], bytes] | None = None
        """Changes the headers and the content of an answer."""
        self.fails_with: dict[str, str] = {}
        """Headers of the answers with 503."""
        self.sent = 0
        """Bytes of all answers."""
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def _answer(self) -> None:
                outer.requests.append(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if outer.fail_next:
                    outer.fail_next -= 1
                    return self._send(503, outer.fails_with, b"")
                if outer.instead:
                    wanted, given = outer.instead
                    body = body.replace(wanted.encode(), given.encode())
                path, _, query = self.path.partition("?")
                if path.startswith("/private/"):
                    return self._send(401, {"WWW-Authenticate": 'Basic realm="git"'}, b"")
                done = subprocess.run(
                    ["git", "http-backend"],
                    env=os.environ
                    | AUTHOR
                    | {
                        "GIT_PROJECT_ROOT": str(folder),
                        "GIT_HTTP_EXPORT_ALL": "1",
                        "GIT_PROTOCOL": self.headers.get("Git-Protocol") or "",
                        "REQUEST_METHOD": self.command,
                        "PATH_INFO": path,
                        "QUERY_STRING": query,
                        "CONTENT_TYPE": self.headers.get("Content-Type") or "",
                        "CONTENT_LENGTH": str(len(body)),
                        "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
                    },
                    input=body,
                    check=False,  # its answer says what is wrong
                    capture_output=True,
                )
                head, _, content = done.stdout.partition(b"\r\n\r\n")
                headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
                content = outer.changes(headers, content) if outer.changes else content
                outer.sent += len(content)
                return self._send(int(headers.pop("Status", "200").split()[0]), headers, content)

            def _send(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args: Any) -> None:
                """Nothing: what matters is in `requests`."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "server.crt", certificates / "server.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.address = f"https://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
