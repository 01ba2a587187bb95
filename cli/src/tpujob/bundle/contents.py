"""The contents of a bundle, and where they are in a checkout. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath

LOCKS = ("operator", "trainer-tpu", "run", "build")
"""Lock files in requirements/ whose wheels are included: for both images, for the command line with a trainer for CPUs,
and for building our own."""
OWN = {
    "tpujob-contract": "contract",
    "tpujob-launcher": "launcher",
    "tpujob-resource": "resource",
    "tpujob-operator": "operator",
    "tpujob-trainer": "trainer",
    "tpujob-sdk": "sdk",
    "tpujob": "cli",
}
"""Our distributions, and their folders."""
OWN_LOCKS = {
    "own-operator": ("tpujob-contract", "tpujob-launcher", "tpujob-resource", "tpujob-operator"),
    "own-trainer": ("tpujob-contract", "tpujob-launcher", "tpujob-trainer", "tpujob-sdk"),
    "own-run": tuple(OWN),
}
"""Lock files of our own wheels, in addition to those of their dependencies."""
COPIED = {
    "images/offline/Dockerfile": "Dockerfile",
    "charts/tpujob-operator/crd/tputrainingjobs.yaml": "crd/tputrainingjobs.yaml",
    "docs/isolated-sites.md": "docs/isolated-sites.md",
    "LICENSE": "LICENSE",
    **{f"requirements/{name}.txt": f"requirements/{name}.txt" for name in LOCKS},
}
"""Files that are copied, and their names in the bundle."""
EXAMPLES = "examples"
CHART = "charts/tpujob-operator"
SOURCES = (*OWN.values(), "charts", "docs", "examples", "images", "requirements")
SOURCE_FILES = ("Dockerfile", ".dockerignore", "LICENSE", "README.md", "CHANGELOG.md")
"""With the folders SOURCES: enough to change the code, build wheels and make a bundle again."""
DOCKERIGNORE = "# What the Dockerfile installs; the rest of the bundle stays behind.\n*\n!wheels\n!requirements\n"
PACKAGES, PINS = "packages", "requirements.txt"
"""The folder for `spec.packages`, and the file with pins in it."""
MARKS = ("Dockerfile", "requirements/run.txt", "contract/pyproject.toml", f"{CHART}/Chart.yaml")
"""Files that identify a checkout."""


@dataclass(frozen=True)
class CarriedImage:
    """An image archive of a bundle."""

    file: str
    """Its path in the bundle."""
    names: tuple[str, ...]
    """The names of its images once loaded, with registry and tag."""


@dataclass(frozen=True)
class Contents:
    """The contents of a bundle, for its README."""

    version: str
    pythons: tuple[str, ...]
    """Versions of Python that the wheels are for, e.g. `3.12`."""
    base_image: str
    """The image that the Dockerfile builds on."""
    images: tuple[CarriedImage, ...] = field(default=())
    has_packages: bool = False
    """Whether there is a folder of packages for the site's own jobs."""


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


def local_names(image: str) -> tuple[str, ...]:
    """Names under which a local builder may have an image, likeliest first; buildah and podman prefix localhost/."""
    names = [full_name(image)]
    if names[0].startswith("docker.io/library/"):
        names.append(f"localhost/{familiar_name(image)}")
    return tuple(names)


def archive_name(image: str) -> str:
    """The path of an image's archive in the bundle."""
    return "images/" + PurePosixPath(familiar_name(image)).name.replace(":", "-").replace("@", "-") + ".tar"


def product_images(version: str) -> tuple[str, ...]:
    """The images that the chart names by default."""
    return (f"tpujob-operator:{version}", f"tpujob-trainer:{version}")
