"""What belongs together goes to one worker: it failed silently once, and was only slower."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.division import CONTROL_PLANE, ROOT, group


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("tests/scenes/control_plane/test_operator_kills.py::test_killed_between_any_two_calls", f"{CONTROL_PLANE} 0"),
        ("tests/scenes/control_plane/test_kueue.py::test_one[one namespace]", f"{CONTROL_PLANE} 1"),
        ("tests/multiprocess/test_meeting.py::test_killed", "tests/multiprocess/test_meeting.py"),
        ("tests/e2e/test_training.py::test_one[operator-stays-delete]", "tests/e2e/test_training.py"),
        ("tests/e2e/test_endings.py::test_one[1-77]", "tests/e2e/test_endings.py::test_one[1-77]"),
    ],
)
def test_what_needs_the_same_things_is_one_group(test: str, expected: str) -> None:
    assert group(test) == expected


def test_a_file_goes_to_one_worker(tmp_path: Path) -> None:
    files = ("tests/contract/test_kubernetes_names.py", "tests/contract/test_exit_codes.py")
    command = [sys.executable, "-m", "pytest", "--verbose", "--numprocesses=2", f"--override-ini=cache_dir={tmp_path}"]

    done = subprocess.run([*command, *files], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout
    workers: dict[str, set[str]] = {file: set() for file in files}
    for worker, file in re.findall(r"\[(gw\d)\].* (tests/\S+?)::", done.stdout):
        workers[file].add(worker)
    assert [len(found) for found in workers.values()] == [1, 1], done.stdout
