"""An image of one program is what container runtimes take for an image."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

from tools.localcluster.archive import write_image


def test_archive_holds_the_program_and_its_digests(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")

    write_image(tmp_path / "image.tar", "tpujob.test/program:1", program=program, at="/bin/it", arguments=["wait"])

    with tarfile.open(tmp_path / "image.tar") as tar:
        content = {member.name: read(tar, member) for member in tar.getmembers()}
    (manifest,) = json.loads(content["manifest.json"])
    config = json.loads(content[manifest["Config"]])
    (layer,) = (content[name] for name in manifest["Layers"])
    assert manifest["RepoTags"] == ["tpujob.test/program:1"]
    assert config["config"]["Entrypoint"] == ["/bin/it", "wait"]
    assert config["config"]["User"] != "0:0"
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as files:
        assert [(entry.name, entry.mode) for entry in files] == [("bin/it", 0o755)]


def read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None
    return file.read()
