"""An archive of a folder; the same files give the same bytes."""

import gzip
import hashlib
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

from tpujob.job.code.files import CodeFiles, files_of_commit, find_files
from tpujob.output.errors import CommandError
from tpujob_contract.job_code import MAX_ARCHIVE_BYTES

_PROGRAM, _FILE = 0o755, 0o644


@dataclass(frozen=True)
class Packed:
    """An archive in memory."""

    data: bytes
    sha256: str
    files: CodeFiles

    @property
    def name(self) -> str:
        """The file name; the same code has the same name, so that it is stored once."""
        return f"{self.sha256}.tar.gz"

    def lines(self) -> list[str]:
        """Lines for people: the packed files, with the changed ones marked."""
        commit = f", commit {self.files.commit[:12]}" if self.files.commit else ", no commit yet"
        changes = f" and {len(self.files.changed)} changed files" if self.files.changed else ""
        listed = [f"  {'*' if name in self.files.changed else ' '} {name}" for name in self.files.names]
        size = f"{len(self.files.names)} files of {self.files.shown}, {len(self.data) / 1024:.0f} KiB packed"
        return [f"code {self.sha256[:12]}: {size}{commit}{changes}", *listed]


def pack(folder: Path, revision: str | None = None) -> Packed:
    """The archive of a folder, as it is now or in a commit.

    Raises:
        CommandError: an entry of the folder cannot be packed, or the archive is too large.
    """
    if revision is None:
        return _pack(find_files(folder))
    with files_of_commit(folder, revision) as files:
        return _pack(files)


def _pack(files: CodeFiles) -> Packed:
    buffer = io.BytesIO()
    # No times, no owners: the digest depends on the files alone.
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", filename="", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in files.names:
            _add(tar, files.folder / name, name)
    data = buffer.getvalue()
    if len(data) > MAX_ARCHIVE_BYTES:
        raise CommandError(
            f"--code: {files.shown} has {len(data) / 1024**2:.0f} MiB packed, at most {MAX_ARCHIVE_BYTES // 1024**2}; "
            "name data in .gitignore"
        )
    return Packed(data, hashlib.sha256(data).hexdigest(), files)


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    info = tarfile.TarInfo(name)
    if path.is_symlink():
        info.type, info.linkname = tarfile.SYMTYPE, str(path.readlink())
        tar.addfile(info)
        return
    content = path.read_bytes()
    info.size = len(content)
    info.mode = _PROGRAM if path.stat().st_mode & 0o100 else _FILE
    tar.addfile(info, io.BytesIO(content))
