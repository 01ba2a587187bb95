"""Installs the files of one git commit: `python -m tpujob_operator.repository REPOSITORY COMMIT DIRECTORY`.

The program git fetches the commit alone, computes the id of each object that it receives, and writes an archive, so
that the same rules apply to names, links and sizes as for `spec.code.archive`. It reads no configuration but the one
below, runs no hook, filter or credential helper, and its memory, its files and its time are bounded.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Dict, Optional

from tpujob_contract.commands import GIT_PROXIES
from tpujob_contract.exit_codes import ExitCode
from tpujob_contract.job_code import MAX_ARCHIVE_BYTES, MAX_FILES, MAX_UNPACKED_BYTES, STAMP
from tpujob_launcher.code.archive import CodeRefused, unpack
from tpujob_launcher.code.install import as_program, emptied, end_when_asked, installed
from tpujob_launcher.code.patience import TIMES, Unanswered, asked, times_of

LONGEST_SECONDS = 600
"""Limit for one command of git, because accelerators wait for it."""
MEMORY_BYTES = 1792 << 20
"""Limit for one process of git: it assembles an object of MAX_UNPACKED_BYTES in memory, with its parts and its base."""
CONFIGURATION = """
[core]
    bigFileThreshold = 1m
[fetch]
    unpackLimit = 1
[gc]
    auto = 0
[http]
    lowSpeedLimit = 1
    lowSpeedTime = 30
[pack]
    threads = 1
[safe]
    directory = *
"""
"""git-scm.com/docs/git-config: large files are streamed, objects stay in a pack, a silent server is left after 30 s,
and a repository on a volume may belong to any user."""
ATTRIBUTES = "* -export-ignore -export-subst -ident -filter -text -eol -working-tree-encoding\n"
"""Overrides each .gitattributes of the commit: its files are installed as they were committed."""
_BOUNDED = """
trap '' XFSZ
ulimit -S -v "$1" 2>/dev/null
ulimit -S -f "$2" 2>/dev/null
shift 2
exec "$@"
"""
"""By a shell, since a child of a large process could not reach `exec` within so little memory. $1: memory in KiB, $2:
size of files in 512 bytes, beyond which git fails with words, not by a signal. A lower limit of the machine stays."""
_SUBMODULE = "160000"
_MOST_WORDS = 4096
"""Characters that are read of what git, and a server through it, says about an error."""
_IS_PRIVATE = re.compile("could not read Username|returned error: 403")
_HAS_NO_COMMIT = re.compile("not our ref|unadvertised object|couldn't find remote ref")
_IS_NO_REPOSITORY = re.compile(
    "repository '.*' not found|not valid: |does not appear to be a git repository|does not support shallow"
)
_IS_ANOTHER_COMMIT = re.compile("did not send all necessary objects|bad (tree )?object [0-9a-f]{40}|missing blob")
_IS_TOO_LARGE = re.compile("File too large")
_IS_DISK_FULL = re.compile("No space left on device|Disk quota exceeded")
_IS_OUT_OF_MEMORY = re.compile("[Oo]ut of memory|[Cc]annot allocate memory|mmap failed")


def install_commit(
    repository: str, commit: str, folder: Path, *, times: int = TIMES, pause_seconds: float = 1.0
) -> int:
    """Writes the files of a commit to a folder; returns their number, or 0 if they are there already.

    Args:
        repository: https://HOST/PATH, or file:///PATH of a folder.
        commit: The commit's id, 40 hexadecimal digits.
        folder: Emptied first, unless it has this commit.
        times: Number of tries if a server does not answer.
        pause_seconds: Pause before the second try; doubles with each further one.

    Raises:
        CodeRefused: The commit cannot be used, or git is not installed; the message says why.
        OSError: The server is unreachable, or the folder cannot be written.
    """
    if installed(folder) == commit:
        return 0
    emptied(folder)
    git, packed = _Git(repository, commit, folder / f"{STAMP}.git"), folder / f"{STAMP}.tar.gz"
    try:
        asked(git.fetch, times, pause_seconds=pause_seconds)
        git.check()
        git.write_archive(packed)
        git.remove()
        count = unpack(packed, folder, field="spec.code.repository")
    finally:
        git.remove()
        packed.unlink(missing_ok=True)
    (folder / STAMP).write_text(commit)
    return count


class _Git:
    """A repository of our own that holds one commit of another one."""

    def __init__(self, repository: str, commit: str, folder: Path) -> None:
        """Creates nothing yet."""
        self._repository = repository
        self._commit = commit
        self._folder = folder

    def fetch(self) -> None:
        """Fetches the commit without its history, into an empty repository.

        Raises:
            CodeRefused: The repository or the commit does not exist, may not be read, or is too large.
            Unanswered: Another try may help.
        """
        self.remove()
        self._folder.mkdir()
        (self._folder / "config.global").write_text(CONFIGURATION)
        self._run("init", "--quiet", "--bare", "--template=", ".")
        (self._folder / "info").mkdir(exist_ok=True)
        (self._folder / "info" / "attributes").write_text(ATTRIBUTES)
        options = ("--quiet", "--depth=1", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
        self._run("fetch", *options, "--", self._repository, self._commit)

    def check(self) -> None:
        """Raises CodeRefused unless it is a commit within the limits, and without submodules."""
        kind = self._run("cat-file", "-t", self._commit).strip()
        if kind != "commit":
            raise CodeRefused(
                f"spec.code.commit: {self._commit} is a {kind}, not a commit; take what "
                f"`git rev-parse {self._commit[:12]}^{{commit}}` prints"
            )
        size = 0
        entries = self._run("ls-tree", "-r", "-t", "-z", "--long", self._commit).split("\0")[:-1]
        if len(entries) > MAX_FILES:
            raise CodeRefused(f"spec.code.repository: the commit has more than {MAX_FILES} entries")
        for entry in entries:
            facts, _, name = entry.partition("\t")
            mode, _, _, length = facts.split()
            if mode == _SUBMODULE:
                raise CodeRefused(
                    f"spec.code.repository: {name!r} is a repository of its own (a submodule), which is not fetched; "
                    "install it in the image, or copy its files"
                )
            size += int(length) if length.isdigit() else 0
        if size > MAX_UNPACKED_BYTES:
            raise CodeRefused(
                f"spec.code.repository: the commit holds more than {MAX_UNPACKED_BYTES // 1024**2} MiB; put data into "
                "the bucket"
            )

    def write_archive(self, target: Path) -> None:
        """Writes the files of the commit as a .tar.gz; their names are checked by `unpack`.

        Raises:
            CodeRefused: git refuses a name, or an object is missing.
        """
        self._run("archive", "--format=tar.gz", "-1", f"--output={target}", self._commit)

    def remove(self) -> None:
        """Removes what was fetched."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, *arguments: str) -> str:
        """Runs a command of git; returns what it printed."""
        # Of what is fetched and printed; an archive has the size that `check` allows, and headers.
        most_bytes = 2 * MAX_UNPACKED_BYTES if arguments[0] == "archive" else MAX_ARCHIVE_BYTES
        output, errors = self._folder / "output", self._folder / "errors"
        environment = self._environment()
        git = shutil.which("git", path=environment["PATH"])
        if git is None:
            raise CodeRefused(
                f"spec.code.repository: {self._repository} is fetched by the program git, which is not installed here; "
                "install it (in a cluster: into the base of the operator's image), or send the code with "
                "`tpujob submit --code`",
                ExitCode.NOT_FOUND,
            )
        bounds = (str(MEMORY_BYTES >> 10), str(most_bytes >> 9))
        with output.open("wb") as stdout, errors.open("wb") as stderr:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _BOUNDED, "sh", *bounds, git, *arguments],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        try:
            code = process.wait(LONGEST_SECONDS)
        except BaseException as error:
            # With the helpers that it started, which are in its process group.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise Unanswered(f"{self._repository} sent for {LONGEST_SECONDS} s and is not done") from error
            raise
        if code != 0:
            with errors.open(errors="replace") as said:
                raise self._failure(arguments[0], said.read(_MOST_WORDS), code)
        return output.read_bytes().decode(errors="surrogateescape")

    def _environment(self) -> Dict[str, str]:
        proxies = {name: value for name, value in os.environ.items() if name.lower() in GIT_PROXIES}
        authority = {"GIT_SSL_CAINFO": os.environ["SSL_CERT_FILE"]} if "SSL_CERT_FILE" in os.environ else {}
        return {
            **proxies,
            **authority,
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._folder),
            "LC_ALL": "C",
            "GIT_ALLOW_PROTOCOL": "https:file",
            "GIT_CONFIG_GLOBAL": str(self._folder / "config.global"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
        }

    def _failure(self, command: str, errors: str, code: int) -> Exception:
        """What a failed command means: CodeRefused, or Unanswered if another try may help."""
        said = _words(errors) or f"`git {command}` ended with {code}"
        if _IS_PRIVATE.search(errors):
            return CodeRefused(
                f"spec.code.repository: {self._repository} is private, or is not there; what needs a password is not "
                "fetched: `tpujob submit --code . --commit REV` takes the commit from your own clone",
                ExitCode.NOT_FOUND,
            )
        if _HAS_NO_COMMIT.search(errors):
            return CodeRefused(
                f"spec.code.commit: {self._repository} has no commit {self._commit}, or does not give it ({said}); "
                "push it, or correct the id",
                ExitCode.NOT_FOUND,
            )
        if _IS_NO_REPOSITORY.search(errors):
            return CodeRefused(
                f"spec.code.repository: {self._repository} is no git repository that user {os.getuid()} can read "
                f"({said}); correct the address (a private repository may answer with a page to sign in)",
                ExitCode.NOT_FOUND,
            )
        if _IS_OUT_OF_MEMORY.search(errors):
            return CodeRefused(
                f"spec.code.repository: what {self._repository} sends becomes more than "
                f"{MAX_UNPACKED_BYTES // 1024**2} MiB in memory ({said}); keep data in the bucket"
            )
        if _IS_TOO_LARGE.search(errors):
            return CodeRefused(
                f"spec.code.repository: the commit of {self._repository} has more than "
                f"{MAX_ARCHIVE_BYTES // 1024**2} MiB packed; keep data in the bucket, and large packages in an image"
            )
        is_final = command != "fetch" and code > 0 and not _IS_DISK_FULL.search(errors)
        if is_final or _IS_ANOTHER_COMMIT.search(errors):
            return CodeRefused(
                f"spec.code.repository: {self._repository} does not give the files of commit {self._commit} ({said}); "
                "the repository is damaged, or was tampered with"
            )
        return Unanswered(f"{self._repository}: {said}")


def _words(errors: str) -> Optional[str]:
    """The first line in which git says why it fails, without the address, else the last line."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    reasons = [line.partition(": ")[2] for line in lines if line.startswith(("fatal: ", "error: "))]
    return next((re.sub("^unable to access '.*?': ", "", line) for line in [*reasons, *lines[-1:]]), None)


def main(arguments: "list[str]") -> int:
    """Runs the init container of a commit; returns its exit code."""
    if len(arguments) != 3:
        sys.exit("usage: python -m tpujob_operator.repository REPOSITORY COMMIT DIRECTORY")
    repository, commit, folder = arguments[0], arguments[1], Path(arguments[2])
    times = times_of(os.environ)
    return as_program(
        lambda: install_commit(repository, commit, folder, times=times), f"{repository}, commit {commit[:12]}", folder
    )


if __name__ == "__main__":
    end_when_asked()
    sys.exit(main(sys.argv[1:]))
