"""The product's images, built from the root Dockerfile without a registry: a Debian base, and wheels from this machine.

- The base is Debian, installed with debootstrap; it has Debian's Python, and is built once.
- Wheels are downloaded here, by hash, and mounted where the Dockerfile's pip finds them: the build itself needs no
  network, and uses the same Dockerfile as everywhere.
- buildah keeps its layers in the cache; a change of the code rebuilds only the layers that depend on it.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.localcluster import kept

ROOT = Path(__file__).parents[2]
FOLDER = kept.FOLDER / "images"
SUITE, PYTHON = "trixie", "3.13"
BASE = f"localhost/tpujob-base:{SUITE}-git"
"""Has the packages in its name that are beside Python: a base of before is not taken for it."""
BASE_PACKAGES = "python3,python3-venv,ca-certificates,git"
LOCKS = ("build", "operator", "trainer-tpu", "wandb")
"""The lock files in requirements/ from which the Dockerfiles install."""
NETWORK_FAILURES = (
    "Temporary failure",
    "unable to resolve",
    "Connection refused",
    "timed out",
    "Network is unreachable",
)
"""Texts in debootstrap's log if it cannot reach the mirror."""
NEWEST_GLIBC = 41
"""The minor version of the base's glibc 2; wheels for this one and older ones fit."""
MOST_LAYERS = 150
"""With more, layers without an image are pruned: of earlier builds, and of stages that are only copied from."""
ANY_CONTAINER = Path("examples") / "any-container"
PRODUCT_INPUTS = (
    "Dockerfile",
    ".dockerignore",
    "images/base/Dockerfile",
    "requirements",
    "contract",
    "launcher",
    "resource",
    "operator",
    "trainer",
    "sdk",
    "cli",
)


@dataclass(frozen=True)
class Image:
    """An image that is built here."""

    name: str
    """With registry and tag, as containerd expands the name in a manifest."""
    context: Path
    inputs: tuple[str, ...]
    """Paths on which it depends, in addition to the base."""
    target: str | None = None
    """The stage of the Dockerfile."""
    arguments: tuple[str, ...] = ()
    """Values of its ARGs."""
    parent: str | None = None
    """The key of the image on which it is based; None: the base."""


def image_name(key: str) -> str:
    """The name of the image with this key; the product's images have the chart's default names."""
    if key == "jax":
        return "docker.io/library/any-container:latest"
    if key == "extended":
        return "docker.io/library/trainer-with-wandb:1"
    return f"docker.io/library/tpujob-{key}:{product_version()}"


def product_version() -> str:
    """The version in the chart, which tags the images."""
    lines = (ROOT / "charts" / "tpujob-operator" / "Chart.yaml").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("appVersion:"))
    return line.partition(":")[2].strip().strip('"')


IMAGES = {
    **{key: Image(image_name(key), ROOT, PRODUCT_INPUTS, target=key) for key in ("operator", "trainer")},
    # For the example of a container without our code.
    "jax": Image(image_name("jax"), ROOT / ANY_CONTAINER, (str(ANY_CONTAINER), "requirements/trainer-tpu.txt")),
}
EXTENDED = Image(
    image_name("extended"),
    ROOT / "images" / "extended",
    (*PRODUCT_INPUTS, "images/extended"),
    arguments=(f"TRAINER={image_name('trainer')}", "PACKAGES=wandb"),
    parent="trainer",
)
"""The trainer with additional packages, built by images/extended/Dockerfile; only if a test asks for it."""


class ImagesUnavailable(Exception):  # noqa: N818 - a state of the network
    """Packages of the base image cannot be downloaded; the message has the failed command's output."""


class ImageBuildError(Exception):
    """An image could not be built; the message ends with the tool's last output lines."""


def build(key: str, announce: Callable[[str], object]) -> str:
    """Builds an image unless it is up to date; returns its id, `sha256:` and 64 digits.

    Raises:
        ImagesUnavailable: Packages of the base image cannot be downloaded.
        ImageBuildError: A step failed.
    """
    with kept.exclusively(FOLDER):
        return _build(key, announce)


def _image(key: str) -> Image:
    return EXTENDED if key == "extended" else IMAGES[key]


def _build(key: str, announce: Callable[[str], object]) -> str:
    image = _image(key)
    if image.parent is not None:
        _build(image.parent, announce)
    identity, made_from = FOLDER / f"{key}.id", FOLDER / f"{key}.made-from"
    inputs = _inputs_hash(image)
    if identity.exists() and made_from.exists() and made_from.read_text() == inputs:
        return identity.read_text()
    announce(f"building the image {image.name}")
    buildah("rm", "--all")  # containers of an interrupted build
    _ensure_base(announce)
    wheels = _ensure_wheels(announce)
    pip_configuration = FOLDER / "pip.conf"
    pip_configuration.write_text("[global]\nno-index = true\nfind-links = /wheelhouse\n")
    made_from.unlink(missing_ok=True)
    buildah(
        "bud",
        "--layers",
        "--isolation=chroot",
        f"--build-arg=BASE_IMAGE={BASE}",
        # buildah does not detect that a mounted stage has changed, but it detects a changed argument.
        *([f"--build-arg=REVISION={inputs[:16]}", f"--target={image.target}"] if image.target else []),
        *(f"--build-arg={argument}" for argument in image.arguments),
        f"--volume={wheels}:/wheelhouse:ro",
        f"--volume={pip_configuration}:/etc/pip.conf:ro",
        f"--tag={image.name}",
        f"--iidfile={identity}",
        str(image.context),
    )
    if len(buildah("images", "--all", "--quiet").split()) > MOST_LAYERS:
        buildah("rmi", "--prune")
    made_from.write_text(inputs)
    return identity.read_text()


def write_archive(key: str, identity: str, archive: Path) -> None:
    """Writes the image with this id, as `docker save` would; by now its name may belong to another image."""
    buildah("push", identity, f"docker-archive:{archive}:{_image(key).name}")


def _inputs_hash(image: Image) -> str:
    """A hash of the base's name, the target stage and the input files."""
    digest = hashlib.sha256(f"{BASE} {image.target}".encode())
    for name in image.inputs:
        path = ROOT / name
        files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
        for file in files:
            if not any(part == "__pycache__" or part.endswith(".egg-info") for part in file.parts):
                digest.update(f"{file.relative_to(ROOT)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _ensure_base(announce: Callable[[str], object]) -> None:
    if buildah("images", "--quiet", "--filter", f"reference={BASE}"):
        return
    announce(f"making a base image of Debian {SUITE} (the first time takes two minutes)")
    system = FOLDER / SUITE
    shutil.rmtree(system, ignore_errors=True)
    system.parent.mkdir(parents=True, exist_ok=True)
    try:
        _run("debootstrap", "--variant=minbase", f"--include={BASE_PACKAGES}", SUITE, str(system), *_mirror())
    except ImageBuildError as error:
        if (system / "debootstrap" / "debootstrap.log").exists():
            log = (system / "debootstrap" / "debootstrap.log").read_text(errors="replace")
            if any(words in log for words in NETWORK_FAILURES):
                raise ImagesUnavailable(f"the packages of the base image cannot be downloaded: {error}") from error
        raise
    for leftovers in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(system / leftovers)
    context = FOLDER / "base"
    context.mkdir(exist_ok=True)
    rootfs = context / "rootfs.tar"
    _run("tar", f"--directory={system}", "--exclude=./dev/*", "--exclude=./proc/*", f"--file={rootfs}", "--create", ".")
    buildah(
        "bud", "--isolation=chroot", f"--file={ROOT / 'images' / 'base' / 'Dockerfile'}", f"--tag={BASE}", str(context)
    )
    shutil.rmtree(context)
    shutil.rmtree(system)


def _mirror() -> list[str]:
    """The Debian mirror that this machine's apt uses; empty if it has none: debootstrap has a default."""
    try:
        found = _run("apt-get", "indextargets", "--format=$(REPO_URI)", "Origin: Debian", "Label: Debian")
    except (ImageBuildError, FileNotFoundError):
        return []
    return sorted(set(found.split()))[:1]


def _ensure_wheels(announce: Callable[[str], object]) -> Path:
    """The folder of all wheels that the Dockerfile installs, downloaded again when a lock file has changed."""
    locks = [ROOT / "requirements" / f"{lock}.txt" for lock in LOCKS]
    digest = hashlib.sha256(b"".join(lock.read_bytes() for lock in locks)).hexdigest()[:16]
    folder = FOLDER / "wheels" / digest
    if folder.exists():
        return folder
    announce("downloading the wheels of the images")
    unfinished = folder.with_name("unfinished")
    unfinished.mkdir(parents=True, exist_ok=True)
    _reuse_wheels(unfinished, "".join(lock.read_text() for lock in locks))
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in range(5, NEWEST_GLIBC + 1)]
    platforms += [
        f"--platform={name}" for name in ("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64")
    ]
    choice = ("--no-deps", "--only-binary=:all:", "--require-hashes", f"--python-version={PYTHON}", *platforms)
    for lock in locks:
        _run(
            sys.executable, "-m", "pip", "download", "--quiet", *choice, f"--requirement={lock}", f"--dest={unfinished}"
        )
    for old in (FOLDER / "wheels").iterdir():
        if old != unfinished:
            shutil.rmtree(old)
    unfinished.rename(folder)
    return folder


def _reuse_wheels(unfinished: Path, locks: str) -> None:
    """Links earlier downloads that are still in the locks, so that pip does not download them; deletes the others."""
    for wheel in (FOLDER / "wheels").glob("*/*.whl"):
        is_locked = f"sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}" in locks
        target = unfinished / wheel.name
        if not is_locked:
            target.unlink(missing_ok=True)
        elif not target.exists():
            target.hardlink_to(wheel)


def buildah(*arguments: str) -> str:
    """Runs buildah with the storage of these images; returns its output.

    Raises:
        ImageBuildError: It exited with an error.
    """
    storage = (f"--root={FOLDER / 'storage'}", f"--runroot={FOLDER / 'run'}", "--storage-driver=overlay")
    return _run("buildah", *storage, *arguments)


def _run(*command: str) -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    result = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode != 0:
        end = "\n".join((result.stderr or result.stdout).strip().splitlines()[-15:])
        raise ImageBuildError(f"`{' '.join(command[:8])} …` failed:\n{end}")
    return result.stdout
