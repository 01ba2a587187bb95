"""The product's images, built from the root Dockerfile without a registry: a Debian base, and wheels from this machine.

- The base is Debian by debootstrap; it has the Python that Debian has, and is made once.
- Wheels are downloaded here, by hash, and mounted where the Dockerfile's pip looks: the build itself needs no network
  and sees the same Dockerfile as everybody else's.
- buildah keeps its layers in the cache; a change of the code makes new the layers that depend on it.
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
BASE = f"localhost/tpujob-base:{SUITE}"
BASE_PACKAGES = "python3,python3-venv,ca-certificates"
LOCKS = ("build", "operator", "trainer-tpu", "wandb")
"""Files in requirements/ from which the Dockerfiles install."""
NETWORK_FAILURES = (
    "Temporary failure",
    "unable to resolve",
    "Connection refused",
    "timed out",
    "Network is unreachable",
)
"""What debootstrap's log says where there is no way to the mirror."""
NEWEST_GLIBC = 41
"""Of the base; wheels for this one and older ones fit."""
MOST_LAYERS = 150
"""Beyond it those go that no image has: of earlier builds, and of stages that are only copied from, a cache."""
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
    """With registry and tag, as containerd completes the name that a manifest gives it."""
    context: Path
    inputs: tuple[str, ...]
    """What it depends on, beside the base."""
    target: str | None = None
    """The stage of the Dockerfile."""
    arguments: tuple[str, ...] = ()
    """For its ARGs."""
    parent: str | None = None
    """The key of the image that it is made from; None: the base."""


def image_name(key: str) -> str:
    """The image of that key; those of the product are named as the chart names them by default."""
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
    # Of the example that brings an image without our code.
    "jax": Image(image_name("jax"), ROOT / ANY_CONTAINER, (str(ANY_CONTAINER), "requirements/trainer-tpu.txt")),
}
EXTENDED = Image(
    image_name("extended"),
    ROOT / "images" / "extended",
    (*PRODUCT_INPUTS, "images/extended"),
    arguments=(f"TRAINER={image_name('trainer')}", "PACKAGES=wandb"),
    parent="trainer",
)
"""The trainer with more packages, by the recipe for it; built where a test asks for it."""


class ImagesUnavailable(Exception):  # noqa: N818 - a state of the network
    """What the images are made of cannot be downloaded; the message says from where."""


class ImageBuildError(Exception):
    """An image could not be built; the message ends with the tool's last output."""


def build(key: str, announce: Callable[[str], object]) -> str:
    """Builds an image where it is not current; returns its id, `sha256:` and 64 digits.

    Raises:
        ImagesUnavailable: Something that it is made of cannot be downloaded now.
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
    buildah("rm", "--all")  # what an interrupted build left
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
        # buildah does not see that a mounted stage has changed; a changed argument it sees.
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
    """Writes the image that was built with this id, as `docker save` would; its name may be another one's by now."""
    buildah("push", identity, f"docker-archive:{archive}:{_image(key).name}")


def _inputs_hash(image: Image) -> str:
    """A hash of all that the build sees."""
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
    """Debian's mirror that this machine's apt uses; empty where it has none, for debootstrap knows one."""
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
    """Puts there what was downloaded for earlier locks and is still in these: pip does not download it again."""
    for wheel in (FOLDER / "wheels").glob("*/*.whl"):
        is_locked = f"sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}" in locks
        target = unfinished / wheel.name
        if not is_locked:
            target.unlink(missing_ok=True)
        elif not target.exists():
            target.hardlink_to(wheel)


def buildah(*arguments: str) -> str:
    """What buildah prints, with the store of these images.

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
