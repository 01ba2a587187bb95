"""Unpacks an archive into a folder, and checks every entry.

A digest proves that the archive is the one that was submitted, not that it is harmless: a user who writes a manifest
chooses both. Nothing is written outside the folder, no special file is created, and no link leads out of it.
"""

from __future__ import annotations

import io
import posixpath
import shutil
import tarfile
import zlib
from pathlib import Path
from typing import IO, Any, Set, Type, Union

from tpujob_contract.exit_codes import ExitCode
from tpujob_contract.job_code import MAX_FILES, MAX_NAME_BYTES, MAX_UNPACKED_BYTES, STAMP

_READ_ONLY = 0o444
_READ_ONLY_PROGRAM = 0o555
_HEADERS_BYTES = 4096
"""Most bytes of one entry besides its content: its header, a long name and padding."""
_MOST_HEADER_BYTES = 64 << 10
"""Most bytes of an extension header (long names and PAX records), which is read into memory as a whole."""
_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class CodeRefused(Exception):  # noqa: N818 - an answer, not a fault
    """The code of a job cannot be used as it is."""

    def __init__(self, reason: str, exit_code: int = ExitCode.CONFIGURATION) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


def unpack(archive: Path, folder: Path, *, field: str = "spec.code.archive") -> int:
    """Unpacks a .tar.gz into an empty folder, with read-only files; returns the number of files.

    Messages of refusals name `field`.

    Raises:
        CodeRefused: An entry leads out of the folder, or is neither file, folder nor link, or the archive is too large;
            the message names it. Files that were written before stay.
    """
    entries = _Entries(folder, field)
    try:
        with (
            archive.open("rb") as file,
            tarfile.open(fileobj=_Limited(file, field), mode="r|", tarinfo=_checked_entries(field)) as tar,
        ):
            for member in tar:
                entries.add(tar, member)
    except (tarfile.TarError, zlib.error, EOFError, UnicodeDecodeError) as error:
        raise CodeRefused(f"{field}: not a .tar.gz file ({error}); `tpujob submit --code` makes one") from error
    return len(entries.files)


def _checked_entries(field: str) -> Type[tarfile.TarInfo]:
    """A class that refuses entries while their header is read, before tarfile allocates memory or disk for them."""

    class Entry(tarfile.TarInfo):
        @classmethod
        def frombuf(cls, buf: Union[bytes, bytearray], encoding: str, errors: str) -> Entry:
            found = super().frombuf(buf, encoding, errors)
            if found.type in _HEADERS and found.size > _MOST_HEADER_BYTES:
                raise CodeRefused(
                    f"{field}: a header of {found.size:,} bytes, more than {_MOST_HEADER_BYTES:,}; pack it with "
                    "`tpujob submit --code`"
                )
            if found.type == tarfile.GNUTYPE_SPARSE:
                raise _sparse(field, found.name)
            return found

        def _proc_gnusparse_00(self, entry: tarfile.TarInfo, *_: Any) -> None:
            raise _sparse(field, entry.name)

        _proc_gnusparse_01 = _proc_gnusparse_10 = _proc_gnusparse_00

    return Entry


def _sparse(field: str, name: str) -> CodeRefused:
    return CodeRefused(
        f"{field}: {name[:80]!r} is a sparse file, a few bytes that become many; pack it without --sparse"
    )


class _Entries:
    """The entries so far, and the folder to which they are written."""

    def __init__(self, folder: Path, field: str) -> None:
        self._folder = folder
        self._field = field
        self._count = 0
        self.files: Set[str] = set()
        self._links: Set[str] = set()

    def add(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        self._count += 1
        if self._count > MAX_FILES:
            raise CodeRefused(f"{self._field}: more than {MAX_FILES} entries; leave out what is not code")
        if member.issparse():
            raise _sparse(self._field, member.name)
        name = self._checked_name(member)
        path = self._folder / name
        if name in self.files or name in self._links:
            raise CodeRefused(f"{self._field}: {member.name!r} is there twice")
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if member.issym():
            self._check_link(name, member)
            path.symlink_to(member.linkname)
            self._links.add(name)
        elif member.isreg():
            self._write(tar, member, path)
            self.files.add(name)
        else:
            raise CodeRefused(f"{self._field}: {member.name!r} is neither a file, a folder nor a symbolic link")

    def _checked_name(self, member: tarfile.TarInfo) -> str:
        name = posixpath.normpath(member.name)
        parts = member.name.split("/")
        if member.name.startswith("/") or ".." in parts or "\0" in member.name:
            raise CodeRefused(f"{self._field}: {member.name!r} leads out of the folder")
        if any(len(part.encode("utf-8", "surrogateescape")) > MAX_NAME_BYTES for part in parts):
            raise CodeRefused(f"{self._field}: {member.name[:40]!r}… has a name of more than {MAX_NAME_BYTES} bytes")
        if name == STAMP:
            raise CodeRefused(f"{self._field}: {STAMP} is the name of a file that is written here")
        parent = posixpath.dirname(name)
        while parent:
            if parent in self._links or parent in self.files:
                raise CodeRefused(f"{self._field}: {member.name!r} lies below {parent!r}, which is no folder")
            parent = posixpath.dirname(parent)
        return name

    def _check_link(self, name: str, member: tarfile.TarInfo) -> None:
        if leads_out(name, member.linkname):
            raise CodeRefused(
                f"{self._field}: {member.name!r} is a link to {member.linkname!r}, which is out of the folder "
                "(a link may go up with `..` at its start alone)"
            )
        if (self._folder / name).is_dir():
            raise CodeRefused(f"{self._field}: {member.name!r} is there twice")

    def _write(self, tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
        source = tar.extractfile(member)
        assert source is not None  # a regular file, by isreg()
        try:
            with path.open("xb") as target:
                shutil.copyfileobj(source, target)
        except (FileExistsError, IsADirectoryError) as error:
            raise CodeRefused(f"{self._field}: {member.name!r} is there twice") from error
        path.chmod(_READ_ONLY_PROGRAM if member.mode & 0o100 else _READ_ONLY)


def leads_out(name: str, target: str) -> bool:
    """Whether a symbolic link at `name`, a path relative to the folder, points or may point out of the folder."""
    if target.startswith("/"):
        return True
    # Each step must stay inside, and go up only at the start: `..` after a name that is itself a link leads elsewhere.
    depth = posixpath.dirname(name).count("/") + 1 if posixpath.dirname(name) else 0
    has_gone_down = False
    for part in target.split("/"):
        if part == "..":
            depth -= 1
            if has_gone_down or depth < 0:
                return True
        elif part not in ("", "."):
            has_gone_down = True
    return False


class _Limited(io.RawIOBase):
    """The unpacked bytes of a gzip file up to a limit, because a small file may expand to fill the disk."""

    def __init__(self, file: IO[bytes], field: str) -> None:
        super().__init__()
        self._field = field
        self._file = file
        self._inflate = zlib.decompressobj(wbits=31)
        self._left = MAX_UNPACKED_BYTES + MAX_FILES * _HEADERS_BYTES

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        wanted = size if size > 0 else 1 << 16
        data = b""
        while not data and not self._inflate.eof:
            compressed = self._inflate.unconsumed_tail or self._file.read(1 << 16)
            if not compressed:
                raise EOFError("it ends in the middle")
            data = self._inflate.decompress(compressed, wanted)
        self._left -= len(data)
        if self._left < 0:
            raise CodeRefused(
                f"{self._field}: holds more than {MAX_UNPACKED_BYTES // 1024**2} MiB; put data into the bucket"
            )
        return data
