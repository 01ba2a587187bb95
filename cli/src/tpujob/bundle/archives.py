"""Image archives: one file that `docker load`, `podman load`, `ctr images import`, skopeo and buildah all read.

It is an OCI layout with compressed layers and the image name in containerd's annotation, plus the manifest.json by
which Docker finds the same blobs. Blobs are named by their checksums, so that damage is detected.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tpujob.bundle.contents import familiar_name, full_name

LAYOUT = "oci-layout"
INDEX = "index.json"
DOCKER_MANIFEST = "manifest.json"
BLOBS = "blobs/sha256/"
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class ImageArchive:
    """The names and ids of the images in an archive."""

    names: tuple[str, ...]
    """Of its images, with registry and tag."""
    image_ids: tuple[str, ...]
    """Of its images: checksums of their configurations, in hex digits."""


def write_archive(layout: Path, image: str, archive: Path) -> None:
    """Packs an OCI layout of one image.

    Args:
        layout: The folder, as `buildah push … oci:FOLDER` leaves it.
        image: The name of the image once it is loaded.
        archive: The file to write.
    """
    index = json.loads((layout / INDEX).read_text())
    (entry,) = index["manifests"]
    manifest = json.loads(_blob(layout, entry["digest"]).read_text())
    entry["annotations"] = {
        "io.containerd.image.name": full_name(image),
        "org.opencontainers.image.ref.name": full_name(image).rpartition(":")[2],
    }
    docker_manifest = [
        {
            "Config": _path(manifest["config"]["digest"]),
            "RepoTags": [familiar_name(image)],
            "Layers": [_path(layer["digest"]) for layer in manifest["layers"]],
        }
    ]
    digests = [entry["digest"], manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]
    unfinished = archive.with_name(f".{archive.name}")
    with tarfile.open(unfinished, "w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, LAYOUT, (layout / LAYOUT).read_bytes())
        _add(tar, INDEX, json.dumps(index).encode())
        _add(tar, DOCKER_MANIFEST, json.dumps(docker_manifest).encode())
        for digest in dict.fromkeys(digests):
            blob = _blob(layout, digest)
            info = tarfile.TarInfo(_path(digest))
            info.size = blob.stat().st_size
            with blob.open("rb") as stream:
                tar.addfile(info, stream)
    unfinished.replace(archive)


def read_archive(archive: Path) -> ImageArchive:
    """The images in an archive that `docker save`, `podman save`, buildah, skopeo or this program wrote.

    Raises:
        ValueError: It is not an image archive.
    """
    try:
        with tarfile.open(archive) as tar:
            members = {member.name.removeprefix("./"): member for member in tar}
            if DOCKER_MANIFEST in members:
                return _docker_images(_json(tar, members[DOCKER_MANIFEST]))
            if INDEX in members:
                return _oci_images(tar, members)
    except (tarfile.TarError, KeyError, OSError, ValueError) as error:
        raise ValueError(f"{archive}: not an image archive ({error or type(error).__name__})") from error
    raise ValueError(f"{archive}: not an image archive: neither {DOCKER_MANIFEST} nor {INDEX} is in it")


def damage(archive: Path) -> list[str]:
    """A line for each blob whose checksum is not its name, and one if the archive cannot be read."""
    lines = []
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                digest = member.name.removeprefix("./").removeprefix(BLOBS)
                stream = tar.extractfile(member)
                if digest != member.name and stream is not None and _sha256(stream) != digest:
                    lines.append(f"{archive.name}: wrong checksum of {member.name}")
    except (tarfile.TarError, OSError) as error:
        lines.append(f"{archive.name}: {error}")
    return lines


def _docker_images(manifest: list[dict[str, Any]]) -> ImageArchive:
    names = [full_name(name) for image in manifest for name in image.get("RepoTags") or []]
    identities = [Path(image["Config"]).name.removesuffix(".json") for image in manifest]
    return ImageArchive(tuple(names), tuple(identities))


def _oci_images(tar: tarfile.TarFile, members: dict[str, tarfile.TarInfo]) -> ImageArchive:
    names, identities = [], []
    for entry in _json(tar, members[INDEX])["manifests"]:
        annotations = entry.get("annotations", {})
        name = annotations.get("io.containerd.image.name", annotations.get("org.opencontainers.image.ref.name"))
        names += [full_name(name)] if name else []
        manifest = _json(tar, members[_path(entry["digest"])])
        identities += [manifest["config"]["digest"].removeprefix("sha256:")] if "config" in manifest else []
    return ImageArchive(tuple(names), tuple(identities))


def _json(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Any:
    stream = tar.extractfile(member)
    return json.loads(stream.read() if stream is not None else b"")


def _sha256(stream: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while block := stream.read(BLOCK_BYTES):
        digest.update(block)
    return digest.hexdigest()


def _path(digest: str) -> str:
    return BLOBS + digest.removeprefix("sha256:")


def _blob(layout: Path, digest: str) -> Path:
    return layout / _path(digest)


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))
