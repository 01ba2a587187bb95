"""A failed test has a second run, alone; only one that fails in both fails the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.run_tests import MOST_RETRIED, known

ROOT = Path(__file__).parents[1]
PASSES = "def test_passes():\n    pass\n"
FAILS_ONCE = """
import pathlib
def test_fails_once():
    seen = pathlib.Path("seen")
    if not seen.exists():
        seen.touch()
        raise AssertionError("the first time")
"""
FAILS_BESIDE_ANOTHER = """
import os
import pytest
def test_first():
    os.environ["LEFT_BY_ANOTHER"] = "yes"
@pytest.fixture
def clean():
    yield
    assert "LEFT_BY_ANOTHER" not in os.environ
def test_fails_beside_another(clean):
    pass
"""
FAILS = "def test_fails():\n    assert False\n"
SKIPPED_THEN = """
import pathlib
import pytest
def test_skipped_then():
    seen = pathlib.Path("seen_by_skipped")
    if seen.exists():
        pytest.skip("its program has gone")
    seen.touch()
    raise AssertionError
"""


RECORDS = """
import pathlib
def test_records(record_property):
    seen = pathlib.Path("seen_by_recording")
    record_property("seconds", 3)
    if not seen.exists():
        seen.touch()
        raise AssertionError("the first time")
"""


def run(folder: Path, *arguments: str, **files: str) -> tuple[int, str]:
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error:record_property\n")
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "tools.run_tests", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("workers", ["0", "2"])
def test_test_that_passes_alone_is_listed_and_fails_nothing(tmp_path: Path, workers: str) -> None:
    code, printed = run(tmp_path, f"--numprocesses={workers}", good=PASSES, once=FAILS_ONCE)
    assert code == 0, printed
    assert (
        "\nFLAKY: test_once.py::test_fails_once: failed in the run, passed alone; add it to tests/flaky.toml\n"
        in printed
    )


def test_known_cause_of_a_flaky_test_is_named() -> None:
    assert known("tests/launcher/peers/test_replaced_pods.py::test_a").startswith("seen 2026-11: a launcher was")


def test_test_that_records_a_figure_passes_alone_too(tmp_path: Path) -> None:
    code, printed = run(tmp_path, records=RECORDS)
    assert code == 0, printed
    assert "FLAKY: test_records.py::test_records" in printed


def test_second_run_is_of_that_test_only(tmp_path: Path) -> None:
    code, printed = run(tmp_path, "-q", "--", "test_beside.py", beside=FAILS_BESIDE_ANOTHER)
    assert code == 0, printed
    assert "FLAKY: test_beside.py::test_fails_beside_another" in printed


def test_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    code, printed = run(tmp_path, bad=FAILS, once=FAILS_ONCE)
    assert code == 1
    assert "FAILED TWICE: test_bad.py::test_fails\n" in printed
    assert "FLAKY: test_once.py::test_fails_once" in printed


def test_test_that_is_skipped_then_has_not_passed(tmp_path: Path) -> None:
    code, printed = run(tmp_path, skipped=SKIPPED_THEN)
    assert code == 1
    assert "FAILED TWICE: test_skipped.py::test_skipped_then" in printed


def test_choice_of_tests_holds_for_the_second_run(tmp_path: Path) -> None:
    code, printed = run(tmp_path, "-k", "once", bad=FAILS, once=FAILS_ONCE)
    assert code == 0, printed
    assert "FLAKY: test_once.py::test_fails_once" in printed


@pytest.mark.parametrize(("text", "code"), [("import no_such_module\n", 2), ("", 5)], ids=["unreadable", "no test"])
def test_what_no_test_decided_keeps_its_exit_code(tmp_path: Path, text: str, code: int) -> None:
    assert run(tmp_path, other=text)[0] == code


def test_many_failures_are_not_run_again(tmp_path: Path) -> None:
    text = "import pytest\n@pytest.mark.parametrize('n', range(%d))\ndef test_n(n):\n    assert False\n"
    code, printed = run(tmp_path, many=text % (MOST_RETRIED + 1))
    assert code == 1
    assert f"{MOST_RETRIED + 1} tests failed" in printed
    assert "again, alone" not in printed
