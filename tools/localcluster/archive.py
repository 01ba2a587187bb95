"""Container images of one static program, built without a base image or a builder, as `docker save` archives."""

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

ARCHITECTURE = "amd64"
NOBODY = "65532:65532"


def write_image(archive: Path, name: str, *, program: Path, at: str, arguments: Sequence[str] = ()) -> None:
    """Writes an image that contains one program and runs it as an unprivileged user.

    Args:
        archive: The file to write.
        name: Of the image, with its tag.
        program: A static binary.
        at: Its absolute path in the image.
        arguments: Of the program.
    """
    layer = _layer(program, at)
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": ARCHITECTURE,
            "os": "linux",
            "config": {"Entrypoint": [at, *arguments], "User": NOBODY},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": [f"{digest}.tar"]}]
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w") as tar:
        _add(tar, "manifest.json", json.dumps(manifest).encode())
        _add(tar, config_name, config)
        _add(tar, f"{digest}.tar", layer)


def _layer(program: Path, at: str) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        _add(tar, at.lstrip("/"), program.read_bytes(), mode=0o755)
    return content.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
