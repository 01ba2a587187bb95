"""Fetches one commit and its objects from a server, or reads them from a folder.

dulwich implements git's protocol, so the image needs no git. The history is not fetched: with gitprotocol-v2 a client
can ask for any commit by its id (git-scm.com/docs/protocol-v2), with a depth of one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import urllib3.exceptions
from dulwich.client import HttpGitClient, HTTPProxyUnauthorized, HTTPUnauthorized
from dulwich.errors import GitProtocolError, NotGitRepository
from dulwich.object_store import BaseObjectStore, DiskObjectStore
from dulwich.objects import ObjectID
from dulwich.repo import Repo

from tpujob_contract import ExitCode
from tpujob_contract.code import MAX_ARCHIVE_BYTES
from tpujob_launcher.code.archive import CodeRefused
from tpujob_launcher.code.patience import TIMES, Unanswered, asked
from tpujob_launcher.git.answers import Answers
from tpujob_launcher.git.pack_limits import check_pack

TIMEOUT_SECONDS = 30.0
_UNKNOWN = ("not our ref", "unadvertised object")
"""Texts of servers that do not have a commit, or do not serve it."""
_FAILED = (GitProtocolError, HTTPUnauthorized, HTTPProxyUnauthorized, urllib3.exceptions.HTTPError)
_DIGEST_BYTES = 20
_NO_REFERENCE = b"refs/tpujob/none"
"""A reference that does not exist, requested instead of all branches and tags."""


@contextlib.contextmanager
def objects_of(
    repository: str, commit: str, scratch: Path, *, times: int = TIMES, pause_seconds: float = 1.0
) -> Iterator[BaseObjectStore]:
    """Yields the objects of a repository, including those of the commit if the repository has it.

    Args:
        repository: https://HOST/PATH, or file:///PATH of a folder that is read in place.
        commit: The commit's id, 40 hexadecimal digits.
        scratch: A folder that does not exist yet, for objects that a server sends.
        times: Number of tries if a server does not answer.
        pause_seconds: Pause before the second try; doubles with each further one.

    Raises:
        CodeRefused: The repository or commit does not exist, may not be read, or is too large.
        OSError: The server did not answer in any of the tries.
    """
    path = repository.removeprefix("file://") if repository.startswith("file://") else ""
    try:
        with contextlib.closing(Repo(path) if path else Repo.init_bare(str(scratch), mkdir=True)) as repo:
            if not path:
                store = repo.object_store
                asked(lambda: _fetch(repository, commit, store), times, pause_seconds=pause_seconds)
            yield repo.object_store
    except NotGitRepository as error:
        readable = f" that user {os.getuid()} can read" if path else ""
        raise CodeRefused(
            f"spec.code.repository: {repository} is no git repository{readable}; correct the address",
            ExitCode.NOT_FOUND,
        ) from error


def _fetch(repository: str, commit: str, store: DiskObjectStore) -> None:
    with contextlib.closing(Answers(repository)) as answers:
        try:
            _ask(repository, commit, store, answers)
        except _FAILED as error:
            said = answers.error or _words(error)
            _refuse(repository, commit, said, is_denied=isinstance(error, HTTPUnauthorized))
            raise Unanswered(f"{repository}: {said}") from error


def _ask(repository: str, commit: str, store: DiskObjectStore, answers: Answers) -> None:
    client = HttpGitClient(
        repository,
        pool_manager=answers,  # type: ignore[arg-type]
        timeout=TIMEOUT_SECONDS,
        thin_packs=False,
        quiet=True,
    )
    file, complete, abort = store.add_pack()
    try:
        client.fetch_pack(
            "",
            lambda refs, depth=None: [ObjectID(commit.encode())],
            _Nothing(),
            _limited(file.write, repository),
            depth=1,
            ref_prefix=[_NO_REFERENCE],
        )
        _check(file)
        check_pack(file, repository)
    except BaseException:
        abort()
        raise
    complete()


def _check(pack: BinaryIO) -> None:
    """Verifies the SHA-1 at the end of a pack (git-scm.com/docs/gitformat-pack), which dulwich does not do."""
    left = pack.seek(0, 2) - _DIGEST_BYTES
    if left < 0:
        return
    pack.seek(0)
    digest = hashlib.sha1(usedforsecurity=False)
    while left:
        data = pack.read(min(left, 1 << 20))
        digest.update(data)
        left -= len(data)
    if digest.digest() != pack.read(_DIGEST_BYTES):
        raise GitProtocolError("the pack that was sent is damaged")


class _Nothing:
    """The local commits for git's negotiation: there are none."""

    shallow: frozenset[ObjectID] = frozenset()

    def __next__(self) -> None:
        return None

    def ack(self, sha: ObjectID) -> None:
        """Does nothing: there are no common commits."""

    def nak(self) -> None:
        """Does nothing: there are no common commits."""


def _limited(write: Callable[[bytes], int], repository: str) -> Callable[[bytes], int]:
    received = 0

    def written(data: bytes) -> int:
        nonlocal received
        received += len(data)
        if received > MAX_ARCHIVE_BYTES:
            raise CodeRefused(
                f"spec.code.repository: the commit of {repository} has more than {MAX_ARCHIVE_BYTES // 1024**2} MiB "
                "packed; keep data in the bucket, and large packages in an image"
            )
        return write(data)

    return written


def _words(error: Exception) -> str:
    """The reason of an error, without the connection pool and the number of retries that urllib3 adds."""
    reason = getattr(error.__cause__, "reason", None)
    return str(error if reason is None else reason).rpartition("): ")[2]


def _refuse(repository: str, commit: str, said: str, *, is_denied: bool) -> None:
    """Raises CodeRefused for an error that a retry would not change."""
    if is_denied or "http resp 403" in said:
        raise CodeRefused(
            f"spec.code.repository: {repository} is private, or is not there; what needs a password is not fetched: "
            "`tpujob submit --code . --commit REV` takes the commit from your own clone",
            ExitCode.NOT_FOUND,
        )
    if any(words in said for words in _UNKNOWN):
        raise CodeRefused(
            f"spec.code.commit: {repository} has no commit {commit}, or does not give it ({said}); push it, or "
            "correct the id",
            ExitCode.NOT_FOUND,
        )
