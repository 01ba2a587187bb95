"""Image archives: written by the builder that has the image, and read for the names in them."""

import json
import shutil
import subprocess
import tarfile
from pathlib import Path, PurePosixPath

from tpujob.output.errors import CommandError
from tpujob_contract import ExitCode

BUILDERS = ("docker", "podman", "buildah")
"""In the order in which they are tried."""


def full_name(image: str) -> str:
    """An image's name with registry and tag, as container runtimes complete it."""
    first, _, rest = image.partition("/")
    has_registry = bool(rest) and (first == "localhost" or "." in first or ":" in first)
    if not has_registry:
        image = f"docker.io/{image}" if rest else f"docker.io/library/{image}"
    last = image.rpartition("/")[2]
    return image if ":" in last or "@" in last else f"{image}:latest"


def familiar_name(image: str) -> str:
    """The shortest name that means the same image."""
    return full_name(image).removeprefix("docker.io/").removeprefix("library/")


def archive_name(image: str) -> str:
    """The name of an image's archive."""
    return PurePosixPath(familiar_name(image)).name.replace(":", "-").replace("@", "-") + ".tar"


def save_image(image: str, archive: Path) -> str:
    """Writes an image that a builder on this machine has, as `docker save` does; returns the builder's name.

    Raises:
        CommandError: No builder has it or could write it; the message has the last line of each.
    """
    names = [full_name(image)]
    if names[0].startswith("docker.io/library/"):
        # buildah and podman prefix what they build.
        names.append(f"localhost/{familiar_name(image)}")
    unfinished = archive.with_name(f".{archive.name}")
    problems = []
    for builder in filter(shutil.which, BUILDERS):
        problem = ""
        for name in names:
            unfinished.unlink(missing_ok=True)
            command = ["push", "--quiet", name, f"docker-archive:{unfinished}:{names[0]}"]
            if builder == "docker":
                command = ["save", f"--output={unfinished}", name]
            result = subprocess.run([builder, *command], stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if result.returncode == 0:
                unfinished.replace(archive)
                return builder
            problem = problem or (result.stderr.strip().splitlines() or ["no message"])[-1]
        problems.append(f"{builder}: {problem}")
    unfinished.unlink(missing_ok=True)
    tried = "; ".join(problems) or "neither docker nor podman nor buildah is here"
    raise CommandError(
        f"image {image}: not on this machine ({tried})",
        "build or pull it, give archives with --images, or leave images out with --no-images",
        exit_code=ExitCode.NOT_FOUND,
    )


def names_in(archive: Path) -> tuple[str, ...]:
    """The full names of the images in an archive of Docker's format, or of OCI's.

    Raises:
        CommandError: It is not an image archive.
    """
    try:
        with tarfile.open(archive) as tar:
            members = {member.name.removeprefix("./"): member for member in tar}
            is_docker = "manifest.json" in members
            stream = tar.extractfile(members["manifest.json" if is_docker else "index.json"])
            content = json.loads(stream.read() if stream is not None else b"")
        if is_docker:
            return tuple(full_name(name) for image in content for name in image["RepoTags"] or [])
        notes = [entry.get("annotations", {}) for entry in content["manifests"]]
    except (tarfile.TarError, KeyError, TypeError, OSError, ValueError) as error:
        raise CommandError(f"--images: {archive}: not an image archive ({type(error).__name__}: {error})") from None
    keys = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
    names = (next((note[key] for key in keys if key in note), None) for note in notes)
    return tuple(full_name(name) for name in names if name)
