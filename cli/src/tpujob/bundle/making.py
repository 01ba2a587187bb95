"""`tpujob bundle`: makes a bundle, or completes an interrupted one."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tpujob.bundle import contents
from tpujob.bundle.archives import read_archive
from tpujob.bundle.builders import carry_image
from tpujob.bundle.checksums import SUMS, sha256, write_sums
from tpujob.bundle.contents import CarriedImage, Contents
from tpujob.bundle.locks import own_lock, read_lock, union
from tpujob.bundle.packing import pack
from tpujob.bundle.readme import readme
from tpujob.bundle.target import Target
from tpujob.bundle.wheels import WheelFolder
from tpujob.errors import CommandError
from tpujob_contract import ExitCode

UNFINISHED = (".fetch-*", ".build-*", ".image-*")
"""Folders that an interrupted run leaves."""
OWN_LOCK = "requirements/own-run.txt"
"""Pins our wheels; it exists only if they were built from the source in the bundle."""


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
    _check_target(bundle)
    bundle.mkdir(parents=True, exist_ok=True)
    with _alone(bundle):
        (bundle / SUMS).unlink(missing_ok=True)
        for pattern in UNFINISHED:
            for folder in bundle.rglob(pattern):
                shutil.rmtree(folder)
        version = chart_version(source)
        _copy(source, bundle)
        same_source = _pack(source, bundle, version)
        # Before the wheels, which take longer: an image may be missing on this machine.
        base = request.base_image or default_base(source)
        images = _carry_images(request, base, version, announce)
        _wheels(request, source, version, announce, same_source=same_source)
        _packages(request, announce)
        made = Contents(version, request.pythons, base, images, has_packages=request.packages is not None)
        (bundle / "README.md").write_text(readme(made))
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


def _check_target(bundle: Path) -> None:
    """Refuses a folder with unrelated files: the list of checksums would include them."""
    if bundle.is_dir() and any(bundle.iterdir()) and not (bundle / "requirements" / "run.txt").exists():
        raise CommandError(
            f"--out: {str(bundle)!r} holds something else; name a new folder, or that of an earlier bundle"
        )


@contextmanager
def _alone(bundle: Path) -> Iterator[None]:
    """Locks the folder; the kernel releases the lock if the process dies."""
    folder = os.open(bundle, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise CommandError(f"--out: another process writes {str(bundle)!r}") from None
    finally:
        os.close(folder)


def _copy(source: Path, bundle: Path) -> None:
    shutil.rmtree(bundle / contents.EXAMPLES, ignore_errors=True)
    for folder in ("requirements", "chart", "crd", "docs", "source"):
        (bundle / folder).mkdir(exist_ok=True)
    for name, target in contents.COPIED.items():
        shutil.copyfile(source / name, bundle / target)
    shutil.copytree(source / contents.EXAMPLES, bundle / contents.EXAMPLES)
    (bundle / ".dockerignore").write_text(contents.DOCKERIGNORE)


def _pack(source: Path, bundle: Path, version: str) -> bool:
    """Packs the chart and the sources; returns whether the sources are the same as in the bundle before."""
    chart = source / contents.CHART
    _drop_others(bundle / "chart", f"{chart.name}-{version}.tgz")
    pack(bundle / f"chart/{chart.name}-{version}.tgz", chart.name, chart, ["."])
    archive = bundle / f"source/tpujob-{version}.tar.gz"
    _drop_others(archive.parent, archive.name)
    now = archive.with_name("unfinished.tar.gz")
    pack(now, f"tpujob-{version}", source, (*contents.SOURCES, *contents.SOURCE_FILES))
    is_same = archive.exists() and sha256(now) == sha256(archive)
    if not is_same:
        # Before the new source is there: if our wheels are not rebuilt in this run, the old ones must not count as its.
        (bundle / OWN_LOCK).unlink(missing_ok=True)
    now.replace(archive)
    return is_same


def _drop_others(folder: Path, name: str) -> None:
    """Removes files with other names, which earlier versions left."""
    for old in folder.iterdir():
        if old.name != name:
            old.unlink()


def _carry_images(
    request: BundleRequest, base: str, version: str, announce: Callable[[str], object]
) -> tuple[CarriedImage, ...]:
    bundle = request.out
    files: list[str] = []
    if request.with_images and request.archives:
        (bundle / "images").mkdir(exist_ok=True)
        for archive in request.archives:
            _read(archive)
            target = bundle / "images" / archive.name
            # A run that completes a bundle may name archives that are already in it.
            if not (target.exists() and target.samefile(archive)):
                announce(f"images/{archive.name}: a copy of {archive}")
                shutil.copyfile(archive, target)
            files.append(f"images/{archive.name}")
    elif request.with_images:
        names = (*contents.product_images(version), base)
        files = [carry_image(name, bundle, announce) for name in names]
    if request.with_images:
        files += [carry_image(name, bundle, announce) for name in request.more_images]
    for old in (bundle / "images").glob("*"):
        if f"images/{old.name}" not in files:
            old.unlink()
    return tuple(CarriedImage(file, _read(bundle / file)) for file in files)


def _read(archive: Path) -> tuple[str, ...]:
    try:
        return read_archive(archive).names
    except ValueError as error:
        raise CommandError(f"--images: {error}") from None


def _packages(request: BundleRequest, announce: Callable[[str], object]) -> None:
    """Fills the folder for `spec.packages` with the pins and their wheels for each Python; without pins, removes it."""
    place = request.out / contents.PACKAGES
    if request.packages is None:
        shutil.rmtree(place, ignore_errors=True)
        return
    try:
        text = request.packages.read_text()
        pins = read_lock(text)
    except (OSError, ValueError) as error:
        raise CommandError(
            f"--packages: {request.packages}: {error}; `uv pip compile --generate-hashes` pins"
        ) from None
    folder = WheelFolder(place, request.wheels, announce)
    folder.drop_damaged(pins)
    needed = set().union(*(folder.fetch(pins, target) for target in _targets(request)))
    (place / contents.PINS).write_text(text)
    folder.keep_only(needed | {contents.PINS})


def _targets(request: BundleRequest) -> list[Target]:
    try:
        return [Target(python) for python in request.pythons]
    except ValueError as error:
        raise CommandError(f"--python: {error}") from None


def _wheels(
    request: BundleRequest, source: Path, version: str, announce: Callable[[str], object], *, same_source: bool
) -> None:
    requirements = request.out / "requirements"
    targets = _targets(request)
    pins = union(read_lock((requirements / f"{name}.txt").read_text()) for name in contents.LOCKS)
    folder = WheelFolder(request.out / "wheels", request.wheels, announce)
    folder.drop_damaged(pins)
    needed = set().union(*(folder.fetch(pins, target) for target in targets))
    own_lock_file = request.out / OWN_LOCK
    own = folder.find(read_lock(own_lock_file.read_text())) if same_source and own_lock_file.exists() else None
    if own is None:
        announce("building our wheels")
        built = folder.build_own([source / place for place in contents.OWN.values()])
        sums = {distribution: sha256(wheel) for distribution, wheel in built.items()}
        for name, distributions in contents.OWN_LOCKS.items():
            (requirements / f"{name}.txt").write_text(own_lock(sums, version, distributions))
        own = {wheel.name for wheel in built.values()}
    folder.keep_only(needed | own)
