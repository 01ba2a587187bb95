"""Archives as somebody might make them, entry by entry."""

import hashlib
import io
import tarfile
from pathlib import Path

type Entry = tuple[str, bytes] | tarfile.TarInfo


def archive(path: Path, *entries: Entry) -> str:
    """Writes a .tar.gz of files (name, content) and of anything else; returns its digest."""
    with tarfile.open(path, "w:gz") as tar:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                tar.addfile(entry)
            else:
                name, content = entry
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    """An entry that is no file: a link, a folder, a device."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info
