"""Writes docs/reference/licences.md, the licences of the packages in the images: `python -m tools.licences`.

The licence is taken from the package's metadata: its SPDX expression, else its classifiers, else the text of the field
`License` if that is short.
"""

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "licences.md"
LOCKS = {"operator": "operator.txt", "trainer": "trainer.txt"}
"""The lock file of each image; the trainer's image also has libtpu, see below."""
PINNED = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)(?:\s*;\s*(.*?))?\s*\\?$", re.MULTILINE)
HEAD = """\
# Licences

<!-- Generated from the installed packages by `make generate`. -->

tpujob itself is under the Apache License 2.0. The images install these Python packages, in the versions of
`requirements/`. The trainer's image for TPUs also has `libtpu`, which Google publishes under terms of its own.
`make sbom` writes the same packages with their hashes as CycloneDX.

| package | version | in the image of | licence, as the package says |
|---|---|---|---|
"""
LONGEST = 60
UNKNOWN = "not said"
ELSEWHERE = "for other platforms than Linux"


def page() -> str:
    """The text of the page."""
    packages: dict[tuple[str, str], list[str]] = {}
    for image, lock in LOCKS.items():
        for name, version in locked(lock):
            packages.setdefault((name, version), []).append(image)
    rows = (
        f"| {name} | {version} | {', '.join(images)} | {licence(name)} |"
        for (name, version), images in sorted(packages.items())
    )
    return HEAD + "\n".join(rows) + "\n"


def locked(lock: str) -> Iterator[tuple[str, str]]:
    """The names and versions in a file of requirements/."""
    for match in PINNED.finditer((ROOT / "requirements" / lock).read_text()):
        yield match[1], match[2]


def licence(name: str) -> str:
    """The licence in a package's metadata; `ELSEWHERE` if it is not installed, `UNKNOWN` if it names none."""
    try:
        found = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ELSEWHERE
    if found.get("License-Expression"):
        return str(found["License-Expression"])
    named = [each for each in found.get_all("Classifier") or [] if each.startswith("License :: ")]
    if named:
        return ", ".join(each.rpartition(" :: ")[2] for each in named)
    text = " ".join((found.get("License") or "").split())
    return text if 0 < len(text) <= LONGEST else UNKNOWN


if __name__ == "__main__":
    PAGE.write_text(page())
