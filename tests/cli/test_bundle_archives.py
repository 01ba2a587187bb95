"""Image archives of a bundle: one file for every tool, whose damage is seen."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from tpujob.bundle.archives import ImageArchive, damage, read_archive, write_archive

REFERENCE = "org.opencontainers.image.ref.name"


def layout_of(folder: Path, layer: bytes = b"layer") -> Path:
    """An OCI layout of one image, as buildah leaves it."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return f"sha256:{digest}"

    manifest = {"schemaVersion": 2, "config": {"digest": blob(b"{}")}, "layers": [{"digest": blob(layer)}]}
    entry = {"digest": blob(json.dumps(manifest).encode()), "size": 1}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return folder


def tar_of(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def test_archive_is_found_by_docker_and_by_containerd(tmp_path):
    archive = tmp_path / "x.tar"
    write_archive(layout_of(tmp_path / "layout"), "tpujob-operator:0.1.0", archive)
    config = hashlib.sha256(b"{}").hexdigest()
    assert read_archive(archive) == ImageArchive(("docker.io/library/tpujob-operator:0.1.0",), (config,))
    with tarfile.open(archive) as tar:
        members = {member.name: content.read() for member in tar if (content := tar.extractfile(member))}
    docker = json.loads(members["manifest.json"])
    assert docker == [
        {
            "Config": f"blobs/sha256/{config}",
            "RepoTags": ["tpujob-operator:0.1.0"],
            "Layers": [f"blobs/sha256/{hashlib.sha256(b'layer').hexdigest()}"],
        }
    ]
    (entry,) = json.loads(members["index.json"])["manifests"]
    assert entry["annotations"] == {
        "io.containerd.image.name": "docker.io/library/tpujob-operator:0.1.0",
        REFERENCE: "0.1.0",
    }
    assert {"oci-layout", entry["digest"].replace("sha256:", "blobs/sha256/")} <= set(members)


def test_same_image_gives_the_same_archive(tmp_path):
    for name in ("one", "two"):
        write_archive(layout_of(tmp_path / name), "x:1", tmp_path / f"{name}.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ({"manifest.json": [{"Config": "abc.json", "RepoTags": ["a.b/x:1", "a.b/y:2"]}]}, ("a.b/x:1", "a.b/y:2")),
        ({"manifest.json": [{"Config": "abc.json", "RepoTags": None}]}, ()),
        ({"index.json": {"manifests": [{"digest": "sha256:m", "annotations": {REFERENCE: "eu.dev/x:1"}}]},
          "blobs/sha256/m": {"config": {"digest": "sha256:abc"}}}, ("eu.dev/x:1",)),
    ],
    ids=["docker save", "without a name", "skopeo"],
)  # fmt: skip
def test_archives_of_others_are_read(tmp_path, files, names):
    archive = tar_of(tmp_path / "x.tar", {name: json.dumps(content).encode() for name, content in files.items()})
    assert read_archive(archive) == ImageArchive(names, ("abc",))


@pytest.mark.parametrize("content", [{}, {"readme.txt": b"x"}, {"manifest.json": b"{"}, {"index.json": b"{}"}])
def test_what_is_no_image_archive_is_refused(tmp_path, content):
    with pytest.raises(ValueError, match=r"x\.tar: not an image archive"):
        read_archive(tar_of(tmp_path / "x.tar", content))


def test_changed_blob_is_named(tmp_path):
    archive = tmp_path / "x.tar"
    write_archive(layout_of(tmp_path / "layout", layer=b"a layer of some length"), "x:1", archive)
    assert damage(archive) == []
    archive.write_bytes(archive.read_bytes().replace(b"a layer of", b"A layer of"))
    digest = hashlib.sha256(b"a layer of some length").hexdigest()
    assert damage(archive) == [f"x.tar: wrong checksum of blobs/sha256/{digest}"]


def test_cut_archive_is_damaged(tmp_path):
    archive = tmp_path / "x.tar"
    write_archive(layout_of(tmp_path / "layout", layer=b"x" * 5000), "x:1", archive)
    archive.write_bytes(archive.read_bytes()[:4000])
    assert damage(archive)
