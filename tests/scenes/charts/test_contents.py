"""What is in the images is listed: by CycloneDX with its hashes, and with licences that allow to pass it on."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import licences

ROOT = Path(__file__).parents[3]
ALLOWED = re.compile(
    r"Apache|MIT|BSD|PSF|Python Software Foundation|MPL-2\.0|Mozilla Public License 2\.0|Zlib|CC0|AFL-2\.1|0BSD"
)
"""Licences that ask for notices and no more; the Mozilla licence also for changes to its own files."""
SPOKEN = ("for other platforms than Linux",)


def bill(lock: str, folder: Path, *options: str) -> list[dict]:
    file, program = folder / "sbom.json", Path(sys.executable).with_name("cyclonedx-py")
    command: list[str | Path] = [
        program,
        "requirements",
        *options,
        f"--output-file={file}",
        ROOT / "requirements" / lock,
    ]
    subprocess.run(command, check=True, capture_output=True)
    content = json.loads(file.read_text())
    assert content["bomFormat"] == "CycloneDX"
    found: list[dict] = content["components"]
    return found


# To validate the longer one against CycloneDX's schema takes long, and tells no more.
@pytest.mark.parametrize(("lock", "options"), [("operator.txt", ()), ("trainer-tpu.txt", ("--no-validate",))])
def test_sbom_has_every_locked_package_with_its_hashes(lock, options, tmp_path):
    components = bill(lock, tmp_path, *options)
    assert {(each["name"], each["version"]) for each in components} == set(licences.locked(lock))
    for each in components:
        assert each["purl"].startswith("pkg:pypi/")
        hashes = [found["alg"] for reference in each["externalReferences"] for found in reference.get("hashes", [])]
        assert set(hashes) == {"SHA-256"}, each["name"]


def test_licences_are_listed():
    assert licences.PAGE.read_text() == licences.page(), "make generate"


def test_licences_allow_to_pass_the_images_on():
    for lock in licences.LOCKS.values():
        for name, _ in licences.locked(lock):
            said = licences.licence(name)
            choices = [re.split(r" AND |, ", choice) for choice in said.split(" OR ")]
            is_allowed = any(all(ALLOWED.search(part) for part in choice) for choice in choices)
            assert said in SPOKEN or is_allowed, f"{name}: {said}"
