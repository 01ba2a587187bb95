"""The files that are packed: of a folder, with changes, but none that git ignores; or of one of its commits."""

import os
import re
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tpujob.output.errors import CommandError
from tpujob_contract.job_code import MAX_FILES, MAX_UNPACKED_BYTES, STAMP
from tpujob_launcher.code.archive import leads_out

_CONFIDENTIAL = re.compile(
    r"(^|/)(\.env(\..*)?|\.netrc|id_(rsa|dsa|ecdsa|ed25519)|.*\.(pem|p12|pfx)|.*credentials.*\.json)$"
)
"""Names of files that usually hold keys; packed only if git tracks them."""


@dataclass(frozen=True)
class CodeFiles:
    """The files to pack, by path relative to the folder."""

    folder: Path
    names: tuple[str, ...]
    changed: frozenset[str]
    """Those that differ from the commit, or that it does not have."""
    commit: str | None
    """None: the repository has none."""
    bytes: int
    shown: str
    """The name of the folder in messages."""

    @property
    def commit_with_changes(self) -> str | None:
        """The value of `spec.code.commit`."""
        return f"{self.commit}+changes" if self.commit and self.changed else self.commit


def find_files(folder: Path) -> CodeFiles:
    """The files to pack.

    Raises:
        CommandError: the folder is in no git repository, is too large, or has an entry that cannot be packed; each is
            named.
    """
    if not folder.is_dir():
        raise CommandError(f"--code: {folder} is no folder; name the folder of your code")
    tracked = _list(folder, "--cached")
    new = {name for name in _list(folder, "--others", "--exclude-standard") if name not in tracked}
    names = tuple(sorted(name for name in {*tracked, *new} if os.path.lexists(folder / name)))
    commit = git(folder, "rev-parse", "--verify", "--quiet", "HEAD", may_fail=True).decode().strip() or None
    differing = _list_differing(folder) if commit else set(tracked)
    return checked_files(folder, names, new=new, changed={*new, *differing}, commit=commit)


def checked_files(
    folder: Path,
    names: tuple[str, ...],
    *,
    new: Collection[str] = (),
    changed: Iterable[str] = (),
    commit: str | None,
    shown: str | None = None,
) -> CodeFiles:
    """Files of a folder, if all of them can be packed.

    Args:
        folder: Where they are.
        names: Their paths in it.
        new: Those that git does not track.
        changed: Those that differ from the commit, or that it does not have.
        commit: The commit that they are from.
        shown: The name of the folder in messages; None: its path.

    Raises:
        CommandError: there are none or too many, they are too large, or some cannot be packed; each is named.
    """
    problems = [problem for name in names if (problem := _problem(folder, name, is_new=name in new))]
    where = shown or str(folder)
    size = sum((folder / name).lstat().st_size for name in names)
    if not names:
        problems.append(f"--code: {where} holds no file that git does not ignore")
    if len(names) > MAX_FILES:
        problems.append(f"--code: {where} has {len(names)} files, at most {MAX_FILES}; name others in .gitignore")
    if size > MAX_UNPACKED_BYTES:
        largest = sorted(names, key=lambda name: -(folder / name).lstat().st_size)[:3]
        problems.append(
            f"--code: {where} has {size / 1024**2:.0f} MiB, at most {MAX_UNPACKED_BYTES // 1024**2}; the largest: "
            f"{', '.join(largest)}; name data in .gitignore"
        )
    if problems:
        raise CommandError(*problems)
    return CodeFiles(folder, names, frozenset(changed), commit, size, where)


def _problem(folder: Path, name: str, *, is_new: bool) -> str | None:
    path = folder / name
    if path.is_symlink():
        target = str(path.readlink())
        return (
            f"--code: {name} is a link to {target}, out of {folder}; copy the file" if leads_out(name, target) else None
        )
    if path.is_dir():
        return f"--code: {name} is a repository of its own (a submodule); install it in the image, or copy its files"
    if not path.is_file():
        return f"--code: {name} is no ordinary file; name it in .gitignore"
    if name == STAMP:
        return f"--code: {name} is a name that pods use themselves; rename the file"
    if is_new and _CONFIDENTIAL.search(name):
        return f"--code: {name} looks like a key, and git does not track it; name it in .gitignore"
    return None


def _list(folder: Path, *options: str) -> set[str]:
    """The files below the folder that git lists with these options, as relative paths."""
    listed = git(folder, "ls-files", "-z", *options, "--", ".")
    return {os.fsdecode(name) for name in listed.split(b"\0") if name}


def _list_differing(folder: Path) -> set[str]:
    listed = git(folder, "diff", "--name-only", "--relative", "-z", "HEAD", "--", ".")
    return {os.fsdecode(name) for name in listed.split(b"\0") if name}


def git(
    folder: Path, *arguments: str, may_fail: bool = False, variables: Mapping[str, str] = MappingProxyType({})
) -> bytes:
    """The stdout of a git command.

    Raises:
        CommandError: git is not installed, or it failed without `may_fail`.
    """
    environment = {**os.environ, **variables}
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], env=environment, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise CommandError("--code: there is no program git here; install it: it says which files are code") from error
    if done.returncode and not may_fail:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        raise CommandError(
            f"--code: {folder} is in no git repository that can be read ({words[-1] if words else 'git failed'}); "
            "`git init` there makes one: git says which files are code, and which to leave out (.gitignore)"
        )
    return done.stdout


@contextmanager
def files_of_commit(folder: Path, revision: str) -> Iterator[CodeFiles]:
    """The files of a folder in a commit, in a temporary folder until the block ends.

    Args:
        folder: In a git repository.
        revision: A commit, a tag or a branch of it.

    Raises:
        CommandError: there is no such commit, or it has an entry that cannot be packed.
    """
    commit = _commit(folder, revision)
    below = os.fsdecode(git(folder, "rev-parse", "--show-prefix").strip())
    with tempfile.TemporaryDirectory(prefix="tpujob-code-") as scratch:
        index = {"GIT_INDEX_FILE": str(Path(scratch, "index"))}
        git(folder, "read-tree", commit, variables=index)
        listed = git(folder, "ls-files", "-z", variables=index)
        names = tuple(sorted(os.fsdecode(name) for name in listed.split(b"\0") if name))
        git(folder, "checkout-index", "--all", "--quiet", f"--prefix={scratch}/files/", variables=index)
        there = Path(scratch, "files", below)
        there.mkdir(parents=True, exist_ok=True)
        yield checked_files(there, names, shown=f"{folder} at {commit[:12]}", commit=commit)


def _commit(folder: Path, revision: str) -> str:
    if not folder.is_dir():
        raise CommandError(f"--code: {folder} is no folder; name the folder of your code")
    found = git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", may_fail=True)
    if not found:
        git(folder, "rev-parse")
        raise CommandError(
            f"--commit: {revision!r} is no commit of the repository of {folder}; `git fetch` may bring it"
        )
    return found.decode().strip()
