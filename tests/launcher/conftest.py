from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from tests.harness.launched import LAUNCHER, Launched


class Launch(Protocol):
    def __call__(self, *command: str, environ: Mapping[str, str] = ..., launcher: Sequence[str] = ...) -> Launched: ...


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts launchers, each with a folder of its own, and ends what a failed test leaves."""
    started: list[Launched] = []

    def start(*command: str, environ: Mapping[str, str] = {}, launcher: Sequence[str] = LAUNCHER) -> Launched:
        folder = tmp_path / f"launcher-{len(started)}"
        folder.mkdir()
        started.append(Launched(folder, command, environ, launcher))
        return started[-1]

    yield start
    for launched in started:
        launched.close()
