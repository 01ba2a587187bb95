"""A person who reads the pages in their order and types what is written there."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.harness.processes import COMPILED_ONCE

ROOT = Path(__file__).parents[2]

PATH = (
    ("README.md", "Your own text"),
    ("docs/laptop.md", "A larger model"),
    ("docs/laptop.md", "The same job on TPUs"),
    ("docs/gke.md", "A job, its status, its logs"),
    ("docs/bring-your-own.md", "Image"),
)
"""The sections whose commands are typed, in the order of a first hour."""
SIDE_PATH = (("README.md", "Your own program"), ("docs/bring-your-own.md", "Image"))
"""The same for somebody who has a program and no use for the trainer."""


def section(page: str, title: str) -> str:
    """The text below a title of the second level."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    assert found, f"no {title!r} in {page}"
    return found[1]


def block(page: str, title: str, language: str, number: int = 0) -> str:
    """A block of code of a section, the first one if no other is asked for."""
    found = re.findall(rf"```{language}\n(.*?)```", section(page, title), re.DOTALL)
    assert number < len(found), f"no {language} below {title!r} of {page}"
    return str(found[number])


def commands(page: str, title: str, number: int = 0) -> list[str]:
    """The lines of a block of a section that are typed."""
    return [line for line in block(page, title, "bash", number).splitlines() if line]


class Newcomer:
    """A person in a folder who types what is written."""

    def __init__(
        self,
        folder: Path,
        kubeconfig: Path | None = None,
        programs: Path | None = None,
        scripts: Path = Path(sys.executable).parent,
    ) -> None:
        """Describes the person.

        Args:
            folder: Where they type.
            kubeconfig: Of their cluster; None where they have none.
            programs: A folder with programs that they have installed, such as kubectl.
            scripts: The folder with `tpujob` and its Python.
        """
        self.folder = folder
        self.environ = {
            **os.environ,
            "PATH": ":".join(str(part) for part in (scripts, programs, os.environ["PATH"]) if part),
            "KUBECONFIG": str(kubeconfig or folder / "no-kubeconfig"),
            "NO_PROXY": "127.0.0.1",
            **COMPILED_ONCE,
        }
        self.environ.pop("JAX_NUM_CPU_DEVICES", None)

    def start(self, command: str) -> subprocess.Popen[str]:
        """Types a command and looks on; close its pipe."""
        return subprocess.Popen(
            shlex.split(command),
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def types(self, command: str, code: int = 0) -> str:
        """What is printed by a command that ends with an exit code."""
        process = self.start(command)
        said, _ = process.communicate(timeout=1000)
        assert process.returncode == code, said
        assert "Traceback" not in said
        return said

    def edits(self, file: str, old: str, new: str) -> None:
        """Changes a part of a file."""
        path = self.folder / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
