"""Images are built from a site's own package index, whose password no layer keeps, and with other versions."""

import hashlib
import re
import secrets
import shutil
import tarfile
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.e2e.surroundings import Surroundings
from tools.localcluster import kept, product_images

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

SMALL = "xxhash"
"""A package of the lock whose wheel stands for another version of jax."""


@pytest.fixture
def wheels(surroundings: Surroundings) -> Path:
    """All wheels of the images, as they were downloaded for the cluster."""
    if not surroundings.is_own or shutil.which("buildah") is None:
        pytest.skip("needs buildah and the images of `make cluster`")
    (folder,) = (product_images.FOLDER / "wheels").iterdir()
    return folder


@contextmanager
def package_index(wheels: Path, folder: Path, password: str) -> Iterator[tuple[str, list[str]]]:
    """The address of an index of these wheels for the user `site`, and the paths that were asked for by that user."""
    names: dict[str, list[Path]] = {}
    for wheel in wheels.glob("*.whl"):
        names.setdefault(re.sub(r"[-_.]+", "-", wheel.name.split("-")[0]).lower(), []).append(wheel)
    for name, files in names.items():
        page = folder / "simple" / name
        page.mkdir(parents=True)
        links = [f'<a href="/{file.name}#sha256={digest(file)}">{file.name}</a>' for file in files]
        (page / "index.html").write_text(f"<!doctype html><html><body>{''.join(links)}</body></html>")
        for file in files:
            (folder / file.name).symlink_to(file)
    expected = "Basic " + b64encode(f"site:{password}".encode()).decode()
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Authorization") != expected:
                self.send_error(401)
                return
            asked.append(self.path)
            super().do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://site:{password}@127.0.0.1:{server.server_address[1]}/simple", asked
        finally:
            server.shutdown()
            thread.join()


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def build(target: str, folder: Path, *options: str) -> str:
    """The id of a stage of the Dockerfile, built with these options."""
    identity = folder / "id"
    base = f"--build-arg=BASE_IMAGE={product_images.BASE}"
    command = ("bud", "--layers", "--isolation=chroot", base, f"--target={target}", f"--iidfile={identity}", *options)
    with kept.exclusively(product_images.FOLDER):
        product_images.buildah(*command, str(product_images.ROOT))
    return identity.read_text()


def contents(image: str, folder: Path) -> dict[str, bytes]:
    """Every file of every layer of an image, its configuration and its manifest."""
    archive = folder / "image.tar"
    product_images.buildah("push", image, f"docker-archive:{archive}:searched:latest")
    found: dict[str, bytes] = {}
    with tarfile.open(archive) as whole:
        for member in whole:
            file = whole.extractfile(member) if member.isfile() else None
            if file is None:
                continue
            if not member.name.endswith(".tar"):
                found[member.name] = file.read()
                continue
            with tarfile.open(fileobj=file) as layer:
                for entry in layer:
                    body = layer.extractfile(entry) if entry.isfile() else None
                    found[f"{member.name}/{entry.name}"] = body.read() if body is not None else b""
    return found


def test_password_of_the_index_is_in_no_layer(wheels: Path, tmp_path: Path) -> None:
    password = f"canary{secrets.token_hex(12)}"
    with package_index(wheels, tmp_path / "index", password) as (address, asked):
        configuration = tmp_path / "pip.conf"
        configuration.write_text(f"[global]\nindex-url = {address}\n")
        secret = f"--secret=id=pip.conf,src={configuration}"
        nothing_kept = f"--build-arg=TRAINER_OVERRIDES={SMALL}"
        image = build("trainer-overrides", tmp_path, secret, nothing_kept, "--no-cache")
        files = contents(image, tmp_path)

    assert any(path.startswith("/simple/hatchling") for path in asked)
    assert any(path.startswith(f"/simple/{SMALL}") for path in asked)
    # What was overridden is there, of the version that the index has.
    assert any(f"overrides/{SMALL}-" in name for name in files)
    assert len(files) > 1000
    encoded = b64encode(f"site:{password}".encode())
    kept = [name for name, body in files.items() if password.encode() in body or encoded in body]
    assert kept == []
