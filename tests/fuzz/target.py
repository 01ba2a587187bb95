"""A reader of what comes from outside, and what it owes whatever is in it: an answer or a refusal, soon, in bounds."""

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from tests.fuzz.changes import changed_bytes, changed_json

LIMIT_SECONDS = 20.0
LIMIT_BYTES = 512 << 20
"""More than a process has taken before."""
LONGEST_MESSAGE = 4000


@dataclass(frozen=True)
class Target:
    """One reader."""

    name: str
    lay_out: Callable[[Path], Path]
    """Makes valid files in an empty folder; the one that is changed."""
    read: Callable[[Path], object]
    """Reads the folder."""
    refusals: tuple[type[BaseException], ...]
    """Errors that are an answer: one line that names the file."""
    says: tuple[str, ...] = ()
    """Any of them is in each refusal; none: the file's name."""
    is_json: bool = False
    has_lines: bool = False
    """Whether a refusal has one line for each thing that is wrong."""
    examples: int = 30
    """In every run of the tests."""


class Laid:
    """The valid files of a target, to be copied for each change."""

    def __init__(self, target: Target, folder: Path) -> None:
        self.target = target
        self._folder = folder / "valid"
        self._folder.mkdir()
        self._file = target.lay_out(self._folder).relative_to(self._folder)
        self.content = (self._folder / self._file).read_bytes()

    def changes(self) -> st.SearchStrategy[bytes]:
        """Contents that are nearly valid."""
        if not self.target.is_json:
            return changed_bytes(self.content)
        return changed_json(json.loads(self.content)) | changed_bytes(self.content)

    def check(self, content: bytes) -> str:
        """Reads a changed content; the refusal, empty where it is taken.

        Raises:
            AssertionError: the reader does not keep what it owes.
            Exception: it crashed.
        """
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name, "in")
            shutil.copytree(self._folder, folder)
            file = folder / self._file
            file.write_bytes(content)
            began, before = time.monotonic(), peak_bytes()
            try:
                self.target.read(folder)
                said = ""
            except self.target.refusals as error:
                said = str(error)
                expected = self.target.says or (file.name,)
                assert any(each in said for each in expected), f"{said!r} does not name any of {expected}"
                assert self.target.has_lines or "\n" not in said.strip(), f"{said!r} has several lines"
                assert len(said) < LONGEST_MESSAGE, f"{len(said)} characters"
            assert time.monotonic() - began < LIMIT_SECONDS, f"it took {time.monotonic() - began:.0f} s"
            assert peak_bytes() - before < LIMIT_BYTES, f"it took {peak_bytes() - before} bytes"
            outside = [each.name for each in Path(name).iterdir() if each.name != "in"]
            assert not outside, f"it wrote {outside} outside"
            return said


def peak_bytes() -> int:
    """The most memory that this process has had."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) << 10
