"""The README of a bundle: its contents, and the commands that load, install and build. Pure, except for templates."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from string import Template

from tpujob.bundle.contents import CarriedImage, Contents, familiar_name, full_name

PACKAGES_ROW = (
    "\n| packages/ | what `spec.packages` of your jobs installs: copy the folder into a job's code, and write "
    "`packages: {requirements: packages/requirements.txt, wheels: packages}` |"
)
REGISTRY = "registry.example.com/tpujob"
"""A placeholder for the site's own registry in commands."""


def readme(contents: Contents) -> str:
    """The text, in Markdown."""
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
