"""A hub of data sets on the loopback: what `huggingface_hub` and `datasets` ask the real one for, and how it answers.

Repositories have commits, branches and tags. Files are served by redirection to a storage with another path, in ranges,
as the real hub does with large ones.
"""

import hashlib
import json
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes import Exchange
from tests.trainer.data.stub_hub import Fault, StubHub

STORAGE = "/storage"
ENTRIES_OF_A_PAGE = 4
"""Few, so that a listing takes several."""


@dataclass
class StubDatasetHub(StubHub):
    """Repositories are folders `folder/owner/name/commit`; `branches` say which commit a name means."""

    branches: dict[tuple[str, str], str] = field(default_factory=dict)

    def commit(self, repository: str, number: int, *, branch: str = "main") -> Path:
        """The folder of a new commit, to which the branch moves."""
        name = hashlib.sha1(f"{repository}/{number}".encode(), usedforsecurity=False).hexdigest()
        self.branches[repository, branch] = name
        path = self.folder / repository / name
        path.mkdir(parents=True)
        return path

    def count(self, *, path: str = "", method: str = "") -> int:
        """Requests so far whose path has this part."""
        return sum(path in request.path and method in request.method for request in self.requests)

    def respond(self, handler: Exchange, path: str, fault: Fault | None) -> None:
        url = urllib.parse.urlsplit(path)
        parts = [urllib.parse.unquote(part) for part in url.path.strip("/").split("/")]
        if f"/{parts[0]}" == STORAGE:
            self._send_file(handler, (self.folder / "/".join(parts[1:])).read_bytes(), fault)
            return
        if parts[:2] == ["api", "datasets"] and len(parts) >= 4:
            self._api(handler, parts[2:], urllib.parse.parse_qs(url.query))
            return
        if parts[0] == "datasets" and parts[3:4] == ["resolve"]:
            self._resolve(handler, "/".join(parts[1:3]), parts[4], "/".join(parts[5:]))
            return
        self._refuse(handler, "")

    def _api(self, handler: Exchange, parts: list[str], query: dict[str, list[str]]) -> None:
        repository, what, revision = "/".join(parts[:2]), (parts[2:3] or ["revision"])[0], (parts[3:4] or ["main"])[0]
        commit, root = self._root(repository, revision)
        if root is None:
            self._refuse(handler, commit)
        elif what == "revision":
            files = [{"rfilename": entry["path"]} for entry in self._entries(root, "") or [] if entry["type"] == "file"]
            self._json(handler, {"_id": "0", "id": repository, "sha": commit, "private": False, "siblings": files})
        elif what == "tree":
            entries = self._entries(root, "/".join(parts[4:]), deep=query.get("recursive", [""])[0].lower() == "true")
            if entries is None:
                self._refuse(handler, "EntryNotFound")
                return
            first = int(query.get("cursor", ["0"])[0])
            more = {}
            if len(entries) > first + ENTRIES_OF_A_PAGE:
                next_query = urllib.parse.urlencode(
                    {name: values[0] for name, values in query.items()} | {"cursor": first + ENTRIES_OF_A_PAGE}
                )
                page = urllib.parse.urlsplit(handler.path).path
                more["Link"] = f'<{self.url}{page}?{next_query}>; rel="next"'
            self._json(handler, entries[first : first + ENTRIES_OF_A_PAGE], more)
        elif what == "paths-info":
            body = handler.content.decode()
            given = json.loads(body) if body.startswith("{") else urllib.parse.parse_qs(body)
            known = {entry["path"]: entry for entry in self._entries(root, "") or []}
            self._json(handler, [known[path] for path in given["paths"] if path in known])
        else:
            self._refuse(handler, "")

    def _resolve(self, handler: Exchange, repository: str, revision: str, name: str) -> None:
        commit, root = self._root(repository, revision)
        if root is None or not (root / name).is_file():
            self._refuse(handler, "EntryNotFound" if root else commit, {"X-Repo-Commit": commit} if root else {})
            return
        content = (root / name).read_bytes()
        tag = hashlib.sha256(content).hexdigest()
        about = {"X-Repo-Commit": commit, "ETag": f'"{tag}"', "Accept-Ranges": "bytes"}
        if name.endswith(".md"):  # small files are answered without a redirection
            handler.reply(200, content, about)
            return
        where = f"{self.url}{STORAGE}/{repository}/{commit}/{name}?signed=once"
        linked = {"X-Linked-Size": str(len(content)), "X-Linked-ETag": f'"{tag}"', "Location": where}
        handler.reply(302, headers=about | linked)

    def _root(self, repository: str, revision: str) -> tuple[str, Path | None]:
        """Commit and folder; else the code of the error."""
        commit = self.branches.get((repository, revision), revision)
        if (self.folder / repository / commit).is_dir():
            return commit, self.folder / repository / commit
        return ("RevisionNotFound" if (self.folder / repository).is_dir() else "RepoNotFound"), None

    def _entries(self, root: Path, below: str, *, deep: bool = True) -> list | None:
        if (root / below).is_file():
            paths = [root / below]
        elif (root / below).is_dir():
            paths = sorted((root / below).rglob("*") if deep else (root / below).iterdir())
        else:
            return None
        return [self._entry(path, str(path.relative_to(root))) for path in paths]

    def _entry(self, path: Path, name: str) -> dict:
        content = b"" if path.is_dir() else path.read_bytes()
        oid, tag = hashlib.sha1(content, usedforsecurity=False).hexdigest(), hashlib.sha256(content).hexdigest()
        about = {"type": "directory" if path.is_dir() else "file", "oid": oid, "size": len(content), "path": name}
        if path.is_dir() or name.endswith(".md"):
            return about
        return about | {"lfs": {"oid": tag, "size": len(content), "pointerSize": 134}}

    def _refuse(self, handler: Exchange, code: str, headers: dict[str, str] | None = None) -> None:
        handler.reply(404, headers={"X-Error-Code": code, "X-Error-Message": code, **(headers or {})})

    def _json(self, handler: Exchange, value: object, headers: dict[str, str] | None = None) -> None:
        handler.reply(200, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})
