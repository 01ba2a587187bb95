"""A bundle of this checkout, and a place without a network to use it in: a network namespace with a loopback alone.

Bundle and image store are kept from run to run, as the images themselves are; what of them is current is not made anew.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tools.localcluster import kept, product_images

FOLDER = kept.FOLDER / "isolated"
BUNDLE = FOLDER / "bundle"
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
ENTER = ("unshare", "--net", "--", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
MOST_LAYERS = 60


def build_images(announce: Callable[[str], object]) -> None:
    """Builds what the bundle carries, where it is not current."""
    for key in ("operator", "trainer"):
        product_images.build(key, announce)


def make_bundle(out: Path = BUNDLE) -> str:
    """Runs `tpujob bundle` on this machine's images; returns what it printed."""
    seeds = [f"--wheels={folder}" for folder in (product_images.FOLDER / "wheels").glob("*")]
    pythons = [f"--python={version}" for version in dict.fromkeys((HERE, product_images.PYTHON))]
    command = ["nice", sys.executable, "-m", "tpujob", "bundle", f"--out={out}", *pythons, *seeds]
    environment = {**os.environ, **_storage(product_images.FOLDER / "storage", product_images.FOLDER / "run")}
    command.append(f"--base-image={product_images.BASE}")
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def readme_commands(heading: str) -> list[list[str]]:
    """The commands below a heading of the bundle's README, as words."""
    text = (BUNDLE / "README.md").read_text().replace("\\\n", " ")
    section = re.split(r"^## ", text, flags=re.MULTILINE)
    (body,) = (part for part in section if part.startswith(f"{heading}\n"))
    lines = (shlex.split(line, comments=True) for line in body.splitlines() if line.startswith("    "))
    return [words for words in lines if words]


def run_isolated(*command: str | Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command where nothing can be reached, with no more of this environment than a path and a home."""
    home = FOLDER / "home"
    home.mkdir(parents=True, exist_ok=True)
    # The README says python3.12 or so; this one is it.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    clean = {"PATH": path, "HOME": str(home), **environment}
    return subprocess.run([*ENTER, *command], cwd=folder, env=clean, capture_output=True, text=True)


class ImageStore:
    """buildah with a store that has nothing but what came from the bundle."""

    def __init__(self) -> None:
        """Opens it, or makes it."""
        FOLDER.mkdir(parents=True, exist_ok=True)
        # runc: crun refuses machines with both kinds of control groups.
        layers = {"BUILDAH_LAYERS": "true", "BUILDAH_RUNTIME": "/usr/sbin/runc"}
        self.environment: Mapping[str, str] = {**_storage(FOLDER / "storage", FOLDER / "run"), **layers}

    def run(self, *command: str | Path) -> str:
        """Runs a command of buildah's in the bundle, isolated; returns its output."""
        result = run_isolated("nice", *command, folder=BUNDLE, **self.environment)
        assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
        return result.stdout

    def prune(self) -> None:
        """Removes layers of earlier builds when they are many."""
        if len(self.run("buildah", "images", "--all", "--quiet").split()) > MOST_LAYERS:
            self.run("buildah", "rmi", "--prune")


def _storage(root: Path, state: Path) -> dict[str, str]:
    file = FOLDER / f"{root.parent.name}.conf"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{root}"\nrunroot = "{state}"\n')
    return {"CONTAINERS_STORAGE_CONF": str(file)}
