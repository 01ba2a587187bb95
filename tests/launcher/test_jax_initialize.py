"""`jax.distributed.initialize()` without arguments: what it is called with, and that real processes meet."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tpujob_launcher.supervise.jax_initialize import with_defaults

ENVIRONMENT = {"JAX_COORDINATOR_ADDRESS": "host-0:8476", "JAX_NUM_PROCESSES": "4", "JAX_PROCESS_ID": "3"}
OURS = ("host-0:8476", 4, 3)


@pytest.mark.parametrize(
    ("arguments", "options", "called"),
    [
        ((), {}, OURS),
        ((), {"initialization_timeout": 600}, OURS),
        ((None, None, None, [0]), {}, (*OURS, [0])),
        (("host-0:8476",), {}, OURS),
        (("other:1",), {}, ("other:1", None, None)),
        ((), {"coordinator_address": "other:1", "num_processes": 2, "process_id": 1}, ("other:1", 2, 1)),
        ((), {"num_processes": 2}, (None, 2, None)),
        ((), {"process_id": 0}, (None, None, 0)),
        ((), {"cluster_detection_method": "slurm"}, (None, None, None)),
    ],
    ids=["bare", "timeout", "devices", "address", "other address", "all", "count", "number", "another cluster"],
)
def test_only_what_a_program_leaves_out_is_filled_in(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[Any, ...], options: dict[str, Any], called: tuple[Any, ...]
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    seen: list[tuple[Any, ...]] = []
    with_defaults(lambda *values, **others: seen.append(values))(*arguments, **options)
    assert seen == [called]


def test_machine_whose_own_name_leads_nowhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**ENVIRONMENT, "JAX_PLATFORMS": "cpu"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(socket, "gethostname", lambda: "nowhere.invalid")
    with pytest.raises(OSError, match=r"of this machine, nowhere\.invalid, does not resolve .* add `127\.0\.0\.1"):
        with_defaults(lambda *values: None)()


SCRIPT = """
import jax
jax.distributed.initialize()
print("process", jax.process_index(), "of", jax.process_count(), "sees", jax.device_count(), flush=True)
"""
BEHIND = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, 'train.py']))"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("program", "accelerator", "expected"),
    [
        ("train.py", "cpu:2x2", {("0", "2", "4"), ("1", "2", "4")}),
        ("train.py", "cpu:1x2", {("0", "1", "2")}),
        ("behind.py", "cpu:2x1", {("0", "2", "2"), ("1", "2", "2")}),
    ],
    ids=["two processes", "one process", "behind another Python"],
)
def test_real_processes_meet(
    tmp_path: Path, program: str, accelerator: str, expected: set[tuple[str, str, str]]
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "behind.py").write_text(BEHIND)
    done = subprocess.run(
        [sys.executable, "-m", "tpujob", "run", program, "--accelerator", accelerator],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("JAX_")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    logs = "".join(log.read_text() for log in tmp_path.glob(".tpujob/**/logs/*/process-*.log"))
    assert set(re.findall(r"process (\d) of (\d) sees (\d)", logs)) == expected


def test_an_import_of_jax_costs_nobody_its_own_finder(tmp_path: Path) -> None:
    """The finder leaves with the first import; a module that is missing is missing as before."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("")
    (tmp_path / "jax" / "distributed.py").write_text("def initialize(*given): print(given)\n")
    program = (
        "import sys; from tpujob_launcher.supervise import jax_initialize; before = list(sys.meta_path);"
        "jax_initialize.install(); import jax.distributed; jax.distributed.initialize();"
        "from jax.distributed import initialize; initialize(); assert sys.meta_path == before;"
        "import importlib.util; assert importlib.util.find_spec('jax.nothing') is None"
    )
    environ = {**os.environ, **ENVIRONMENT}
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"{OURS}\n" * 2), done.stderr
