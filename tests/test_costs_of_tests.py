"""The table of costs, and what is kept of it."""

import subprocess
import sys
import time

from tools import test_costs


def test_table_has_folders_and_names_those_that_got_dearer() -> None:
    tests = {"tests/trainer/model/test_a.py::b": 30.0, "tests/cli/test_c.py::d": 9.0, "tests/test_e.py::f": 0.5}
    kept = {"tests/trainer/model/test_a.py": 20.0, "tests/cli/test_c.py": 1.0, "tests/cli/test_not_run.py": 50.0}

    lines = [" ".join(line.split()) for line in test_costs.table(tests, kept)]

    assert lines == [
        "tests in tests seconds of processor before",
        "trainer/model 1 30 20 dearer",
        "cli 1 9 1",
        ". 1 0 0",
        "all 3 40 22",
        "the dearest:",
        "30 s tests/trainer/model/test_a.py::b",
        "9 s tests/cli/test_c.py::d",
        "0 s tests/test_e.py::f",
    ]


def test_folder_of_files_too_cheap_to_be_kept_is_not_dearer() -> None:
    tests = {f"tests/contract/test_{number}.py::a": 0.9 for number in range(20)}

    (_, line, *_) = test_costs.table(tests, {})

    assert line.split() == ["contract", "20", "18", "18"]


def test_figures_of_files_that_were_not_run_stay(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(test_costs, "FILE", tmp_path / "tests" / "costs.toml")
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / "tests" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "tests" / name).touch()
    test_costs.keep({"tests/test_a.py": 3.2, "tests/test_b.py": 0.4, "tests/test_gone.py": 8.0})
    test_costs.keep({"tests/test_b.py": 7.0})
    assert test_costs.kept() == {"tests/test_a.py": 3, "tests/test_b.py": 7}


def test_a_child_that_has_ended_is_counted() -> None:
    program = "import time; sum(range(10**7)); print(time.process_time())"
    own, before = time.process_time(), test_costs.used()
    child = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    spent = test_costs.used() - before - (time.process_time() - own)
    assert spent >= 0.9 * float(child.stdout)  # what the kernel counts is rounded to its clock
