"""A real git server on loopback: `git http-backend` behind TLS, and repositories made with git itself."""

from __future__ import annotations

import os
import ssl
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.fakes import Exchange, HttpServer
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
        self._folder = folder
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "server.crt", certificates / "server.key")
        self._server = HttpServer(self._answer, tls=context)
        self.address = self._server.url

    def _answer(self, exchange: Exchange) -> None:
        self.requests.append(exchange.path)
        if self.fail_next:
            self.fail_next -= 1
            exchange.reply(503, headers=self.fails_with)
        elif exchange.path.startswith("/private/"):
            exchange.reply(401, headers={"WWW-Authenticate": 'Basic realm="git"'})
        else:
            head, _, content = self._backend(exchange).partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
            content = self.changes(headers, content) if self.changes else content
            self.sent += len(content)
            exchange.reply(int(headers.pop("Status", "200").split()[0]), content, headers)

    def _backend(self, exchange: Exchange) -> bytes:
        """What `git http-backend` says to a request."""
        body = exchange.content
        if self.instead:
            wanted, given = self.instead
            body = body.replace(wanted.encode(), given.encode())
        path, _, query = exchange.path.partition("?")
        variables = {
            "GIT_PROJECT_ROOT": str(self._folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": exchange.headers.get("Git-Protocol") or "",
            "REQUEST_METHOD": exchange.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": exchange.headers.get("Content-Type") or "",
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": exchange.headers.get("Content-Encoding") or "",
        }
        environment = os.environ | AUTHOR | variables
        # Its answer says what is wrong.
        done = subprocess.run(["git", "http-backend"], env=environment, input=body, check=False, stdout=subprocess.PIPE)
        return done.stdout

    def close(self) -> None:
        self._server.close()
