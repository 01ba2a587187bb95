"""The contents of a bundle, where they are in a checkout, and the README that says what to do with them."""

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from string import Template

from tpujob.bundle.images import familiar_name, full_name

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


PACKAGES_ROW = (
    "\n| packages/ | what `spec.packages` of your jobs installs: copy the folder into a job's code, and write "
    "`packages: {requirements: packages/requirements.txt, wheels: packages}` |"
)
REGISTRY = "registry.example.com/tpujob"
"""A placeholder for the site's own registry in commands."""


def product_images(version: str) -> tuple[str, ...]:
    """The images that the chart names by default."""
    return (f"tpujob-operator:{version}", f"tpujob-trainer:{version}")


def readme(contents: Contents) -> str:
    """The README of a bundle, in Markdown: its contents, and the commands that load, install and build."""
    return _template("readme.md").substitute(
        version=contents.version,
        pythons=" or ".join(contents.pythons),
        python=contents.pythons[0],
        base=familiar_name(contents.base_image),
        full_base=full_name(contents.base_image),
        registry=REGISTRY,
        images_summary="loaded as below" if contents.images else "none in this bundle; build them as below",
        packages_row=PACKAGES_ROW if contents.has_packages else "",
        images_section=_images_section(contents.images) if contents.images else "",
    )


def _images_section(images: tuple[CarriedImage, ...]) -> str:
    first = images[0]
    short = familiar_name(first.names[0]) if first.names else PurePosixPath(first.file).stem
    return _template("readme_images.md").substitute(
        table="\n".join(f"| {image.file} | {', '.join(image.names) or 'without a name'} |" for image in images),
        file=first.file,
        short=short,
        full=full_name(short),
        target=f"{REGISTRY}/{PurePosixPath(short).name}",
        imports="\n".join(f"    ctr --namespace k8s.io images import {image.file}" for image in images),
    )


def _template(name: str) -> Template:
    return Template(Path(__file__).with_name(name).read_text())
