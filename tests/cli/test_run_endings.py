"""How `tpujob run` ends in terminals, pipes, locales and folders that are not as usual; its programs are cheap."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

LINES = 12_000
"""More than the command line reads of a log at once, several times."""
VERBOSE = f"""
import os
for i in range({LINES}):
    print(f"layer {{i}}: shape (1024, 1024) float32, replicated ......................")
print("accuracy 0.93", flush=True)
os.write(1, b"no newline")
"""


def run_program(folder: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tpujob", "run", *arguments]
    streams = {name: subprocess.PIPE for name in ("stdout", "stderr") if name not in options}
    return subprocess.run(command, cwd=folder, text=True, errors="replace", **streams, **options)  # type: ignore[call-overload]


def test_all_output_is_shown_before_the_end(tmp_path):
    (tmp_path / "train.py").write_text(VERBOSE)
    done = run_program(tmp_path, "train.py")
    assert done.returncode == 0, done.stderr
    shown = done.stdout.splitlines()
    assert sum(line.startswith("layer ") for line in shown) == LINES
    assert shown[shown.index("accuracy 0.93") :] == ["accuracy 0.93", "no newline", "finished"]
    logs = [sys.executable, "-m", "tpujob", "logs", "--local", "train"]
    for option in ("--tail=3", "--follow"):
        log = subprocess.run([*logs, option], cwd=tmp_path, capture_output=True, text=True).stdout
        assert log.endswith("accuracy 0.93\nno newline\n")
