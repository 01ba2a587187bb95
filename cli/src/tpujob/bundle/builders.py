"""Image stores of this machine: which builder has an image, and the image as an archive."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tpujob.bundle.archives import damage, read_archive, write_archive
from tpujob.bundle.contents import archive_name, local_names
from tpujob.errors import CommandError
from tpujob_contract import ExitCode

INSPECT = {
    "docker": ("docker", "image", "inspect", "--format={{.Id}}"),
    "podman": ("podman", "image", "inspect", "--format={{.Id}}"),
    "buildah": ("buildah", "inspect", "--type=image", "--format={{.FromImageID}}"),
}
"""The command of each builder that prints an image's id, in the order in which they are tried."""


@dataclass(frozen=True)
class StoredImage:
    """An image in the store of a builder."""

    builder: str
    name: str
    """Its name in this builder's store."""
    image_id: str
    """Checksum of its configuration (in some Docker stores, of its manifest), in hex digits."""


def find_image(image: str) -> StoredImage:
    """An image in the store of the first builder on this machine that has it.

    Raises:
        CommandError: No builder has it; the message names those that were tried.
    """
    asked = []
    for builder, inspect in INSPECT.items():
        if shutil.which(builder) is None:
            continue
        problem = ""
        for name in local_names(image):
            result = subprocess.run([*inspect, name], stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if result.returncode == 0:
                return StoredImage(builder, name, result.stdout.strip().removeprefix("sha256:"))
            problem = problem or (result.stderr.strip().splitlines() or ["no answer"])[-1]
        asked.append(f"{builder}: {problem}")
    raise CommandError(
        f"image {image}: not on this machine ({'; '.join(asked) or 'neither docker nor podman nor buildah is here'})",
        "build or pull it, give archives with --images, or leave images out with --no-images",
        exit_code=ExitCode.NOT_FOUND,
    )


def carry_image(image: str, bundle: Path, announce: Callable[[str], object]) -> str:
    """Writes an image into a bundle, unless it is already there; returns the archive's path in it.

    Raises:
        CommandError: No builder has it, or the builder could not write it.
    """
    stored = find_image(image)
    file = archive_name(image)
    archive = bundle / file
    if archive.exists():
        wrong = damage(archive)
        for line in wrong:
            announce(f"{line}: written again")
        if not wrong and stored.image_id in read_archive(archive).image_ids:
            return file
    announce(f"{file}: {stored.name} from {stored.builder}")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=bundle, prefix=".image-") as folder:
        if stored.builder == "docker":
            whole = Path(folder) / "image.tar"
            _run("docker", "save", f"--output={whole}", stored.name)
            whole.replace(archive)
        else:
            layout = Path(folder) / "layout"
            _run(stored.builder, "push", "--quiet", stored.name, f"oci:{layout}")
            write_archive(layout, image, archive)
    return file


def _run(*command: str) -> None:
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode != 0:
        end = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise CommandError(f"`{' '.join(command)}` failed: {end}", exit_code=1)
