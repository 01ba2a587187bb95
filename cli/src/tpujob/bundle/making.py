"""`tpujob bundle`: makes a bundle, or completes an interrupted one."""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpujob.bundle import contents
from tpujob.bundle.checksums import SUMS, write_sums
from tpujob.bundle.contents import CarriedImage, Contents
from tpujob.bundle.images import archive_name, full_name, names_in, save_image
from tpujob.bundle.wheels import PYTHON, build_wheels, fetch_wheels, own_lock, pins_for
from tpujob.output.errors import CommandError
from tpujob_contract import ExitCode


@dataclass(frozen=True, kw_only=True)
class BundleRequest:
    """The options of `tpujob bundle`."""

    out: Path
    source: Path | None = None
    """A checkout; None: the one that the command runs from, else the current folder."""
    pythons: tuple[str, ...] = ("3.12",)
    wheels: tuple[Path, ...] = ()
    """Folders with wheels, tried before the index."""
    base_image: str | None = None
    """None: the Dockerfile's."""
    more_images: tuple[str, ...] = ()
    """Names of images to include in addition to ours."""
    archives: tuple[Path, ...] = ()
    """Image archives to include in place of our images and the base image from a builder."""
    with_images: bool = True
    packages: Path | None = None
    """A file with pins, for `spec.packages` of the site's own jobs."""


def make_bundle(request: BundleRequest, announce: Callable[[str], object]) -> Contents:
    """Makes or completes the bundle, and returns its contents.

    Args:
        request: What to make, and where.
        announce: Called with a line before each part that takes time.

    Raises:
        CommandError: An input is missing; what was made so far stays, for the next run.
    """
    source, bundle = find_checkout(request.source), request.out
    for python in request.pythons:
        if not PYTHON.fullmatch(python):
            raise CommandError(f"--python: {python!r} is no version of Python such as 3.12")
    packages = _lock_of_packages(request)
    _claim(bundle)
    (bundle / SUMS).unlink(missing_ok=True)
    version = chart_version(source)
    _copy(source, bundle, version)
    # Before the wheels, which take longer: an image may be missing on this machine.
    base = request.base_image or default_base(source)
    images = carry_images(request, base, version, announce)
    _wheels(request, source, version, announce)
    carry_packages(request, packages, announce)
    made = Contents(version, request.pythons, base, images, has_packages=request.packages is not None)
    (bundle / "README.md").write_text(contents.readme(made))
    announce("checksums")
    write_sums(bundle)
    return made


def find_checkout(named: Path | None) -> Path:
    """The checkout to bundle.

    Raises:
        CommandError: There is none.
    """
    places = [named] if named else [Path.cwd(), *Path(__file__).parents]
    for place in places:
        if all((place / mark).is_file() for mark in contents.MARKS):
            return place.absolute()
    raise CommandError(
        f"--source: {str(named)!r} is not a checkout of tpujob (no {contents.MARKS[1]} in it)"
        if named
        else "--source: our wheels and the chart are made from a checkout of tpujob, and neither the current folder "
        "nor the installed command belongs to one; name it (the source/ of a bundle, unpacked, is one)",
        exit_code=ExitCode.NOT_FOUND,
    )


def chart_version(source: Path) -> str:
    """The chart's appVersion, which is the tag of the images."""
    found = re.search(r'^appVersion: "?([^"\s]+)', (source / contents.CHART / "Chart.yaml").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def default_base(source: Path) -> str:
    """The default base image of the Dockerfile."""
    found = re.search(r"^ARG BASE_IMAGE=(\S+)", (source / "images/offline/Dockerfile").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def pack(archive: Path, folder: Path, names: Sequence[str], top: str = "") -> None:
    """Writes a .tar.gz of files and folders, below `top`; the same contents give the same bytes."""
    unfinished = archive.with_name(f".{archive.name}")
    same = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"]
    left_out = [f"--exclude={pattern}" for pattern in ("__pycache__", "*.egg-info", ".DS_Store")]
    move = f"--transform=flags=r;s,^,{top},"
    create = ["tar", "--create", "--gzip", f"--file={unfinished}", *same, *left_out, move, f"--directory={folder}"]
    subprocess.run([*create, *names], check=True, stdin=subprocess.DEVNULL)
    unfinished.replace(archive)


def carry_images(
    request: BundleRequest, base: str, version: str, announce: Callable[[str], object]
) -> tuple[CarriedImage, ...]:
    """Copies image archives into the bundle, or has the builders of this machine write them."""
    folder = request.out / "images"
    carried = {}
    if request.with_images:
        folder.mkdir(exist_ok=True)
        for archive in request.archives:
            carried[archive.name] = names_in(archive)
            # A run that completes a bundle may name archives that are already in it.
            if not ((folder / archive.name).exists() and (folder / archive.name).samefile(archive)):
                announce(f"images/{archive.name}: a copy of {archive}")
                shutil.copyfile(archive, folder / archive.name)
        ours = () if request.archives else (*contents.product_images(version), base)
        for image in (*ours, *request.more_images):
            builder = save_image(image, folder / archive_name(image))
            announce(f"images/{archive_name(image)}: {image} from {builder}")
            carried[archive_name(image)] = (full_name(image),)
    _keep_only(folder, carried)
    return tuple(CarriedImage(f"images/{file}", names) for file, names in carried.items())


def _lock_of_packages(request: BundleRequest) -> str | None:
    """The text of the file for `spec.packages`, which has pins only; None: there is none.

    Raises:
        CommandError: It cannot be read, or has something else.
    """
    if request.packages is None:
        return None
    try:
        text = request.packages.read_text("utf-8-sig")
        for python in request.pythons:
            pins_for(text, python)
    except (OSError, ValueError) as error:
        raise CommandError(f"--packages: {request.packages}: {error}") from None
    return text


def carry_packages(request: BundleRequest, lock: str | None, announce: Callable[[str], object]) -> None:
    """Fills the folder for `spec.packages` with the pins and their wheels for each Python; without pins, removes it."""
    place = request.out / contents.PACKAGES
    if lock is None:
        shutil.rmtree(place, ignore_errors=True)
        return
    fetch_wheels(lock, request.pythons, place, request.wheels, announce)
    (place / contents.PINS).write_text(lock)


def _claim(bundle: Path) -> None:
    """Makes the folder, and keeps other processes and folders with unrelated files from being written to."""
    if bundle.is_dir() and any(bundle.iterdir()) and not (bundle / "requirements" / "run.txt").exists():
        raise CommandError(
            f"--out: {str(bundle)!r} holds something else; name a new folder, or that of an earlier bundle"
        )
    bundle.mkdir(parents=True, exist_ok=True)
    try:
        # Never closed: the kernel releases the lock when the process ends.
        fcntl.flock(os.open(bundle, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CommandError(f"--out: another process writes {str(bundle)!r}") from None


def _copy(source: Path, bundle: Path, version: str) -> None:
    """Copies files, and packs the chart and the sources."""
    for folder in ("requirements", "chart", "crd", "docs", "source"):
        (bundle / folder).mkdir(exist_ok=True)
    for name, target in contents.COPIED.items():
        shutil.copyfile(source / name, bundle / target)
    shutil.rmtree(bundle / contents.EXAMPLES, ignore_errors=True)
    shutil.copytree(source / contents.EXAMPLES, bundle / contents.EXAMPLES)
    (bundle / ".dockerignore").write_text(contents.DOCKERIGNORE)
    chart = source / contents.CHART
    packed = bundle / f"chart/{chart.name}-{version}.tgz"
    pack(packed, chart.parent, (chart.name,))
    _keep_only(packed.parent, {packed.name})
    packed = bundle / f"source/tpujob-{version}.tar.gz"
    pack(packed, source, (*contents.SOURCES, *contents.SOURCE_FILES), f"tpujob-{version}/")
    _keep_only(packed.parent, {packed.name})


def _wheels(request: BundleRequest, source: Path, version: str, announce: Callable[[str], object]) -> None:
    folder, requirements = request.out / "wheels", request.out / "requirements"
    for wheel in folder.glob("tpujob*.whl"):
        wheel.unlink()
    locks = [(requirements / f"{name}.txt").read_text() for name in contents.LOCKS]
    fetch_wheels("\n".join(locks), request.pythons, folder, request.wheels, announce)
    announce("building our wheels")
    build_wheels([source / place for place in contents.OWN.values()], folder)
    built = {wheel.name.partition("-")[0].replace("_", "-"): wheel for wheel in folder.glob("tpujob*.whl")}
    for name, distributions in contents.OWN_LOCKS.items():
        (requirements / f"{name}.txt").write_text(own_lock(built, version, distributions))


def _keep_only(folder: Path, names: set[str] | dict[str, tuple[str, ...]]) -> None:
    """Removes what earlier or interrupted runs left."""
    for old in folder.glob("*"):
        if old.name not in names:
            old.unlink()
