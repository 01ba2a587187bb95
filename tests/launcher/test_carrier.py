"""The launcher as one file, on every Python that other people's images have."""

import functools
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tpujob_contract
import tpujob_launcher
from tests.harness.launched import JOB, LEAVES_A_GRANDCHILD, PYTHON
from tests.launcher.conftest import Launch
from tools.localcluster.processes import is_alive
from tpujob_contract.commands import CARRIED, CARRIED_FILE, CARRY, IN_IMAGE
from tpujob_launcher.code.carrier import write_launcher


@functools.cache
def find_python(version: str) -> str | None:
    """A working interpreter of this version: from PATH, else one that pyenv keeps."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]
    for candidate in filter(None, candidates):
        command = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        if subprocess.run(command, capture_output=True, text=True).stdout == f"{version}\n":
            return candidate
    return None


@pytest.fixture(params=["3.9", "3.13"])
def python(request) -> str:
    found = find_python(request.param)
    if found is None:
        pytest.skip(f"no Python {request.param} on this machine")
    return found


@pytest.fixture
def archive(tmp_path) -> Path:
    write_launcher(tmp_path / "launch.pyz")
    return tmp_path / "launch.pyz"


def test_archive_runs_on(python, archive, launch: Launch):
    """One run through all of it: ids, a stop, an orphan in a session of its own, the message."""
    program = "import os; print('id', os.environ['JAX_PROCESS_ID'], flush=True)" + LEAVES_A_GRANDCHILD
    launched = launch(*PYTHON, program, "setsid,orphan", "wait", environ=JOB, launcher=(python, str(archive)))
    launched.wait_until_said("ready")
    launched.send(signal.SIGTERM)
    assert launched.wait() == 75
    code, told, stopped, *printed = launched.message
    assert (code, told) == (
        "exit code 75, asked to stop; state saved",
        "told to stop by SIGTERM, the program returned 0",
    )
    assert stopped.startswith("program stopped at ")
    assert printed == launched.stdout.splitlines()
    assert launched.stdout.startswith("id 7\n")
    assert len(launched.stderr.splitlines()) == 1
    assert not is_alive(launched.grandchild)


def test_archive_is_the_same_each_time(archive, tmp_path):
    write_launcher(tmp_path / "again.pyz")
    assert archive.read_bytes() == (tmp_path / "again.pyz").read_bytes()


def test_archive_holds_the_contract_and_can_be_read_by_any_user(archive):
    with zipfile.ZipFile(archive) as opened:
        names = opened.namelist()
    assert names[0] == "__main__.py"
    assert "tpujob_launcher/main.py" in names
    assert "tpujob_contract/environment.py" in names
    assert archive.stat().st_mode & 0o777 == 0o644


def test_archive_is_replaced_whole(archive, tmp_path):
    with archive.open("rb") as in_use:
        write_launcher(archive)
        assert in_use.read() == archive.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["launch.pyz"]


def test_init_container_command_writes_it(tmp_path):
    assert CARRY[0] == IN_IMAGE[0] == "python"
    assert CARRY[-1] == CARRIED_FILE == CARRIED[1]
    written = tmp_path / "launch.pyz"
    subprocess.run([sys.executable, *CARRY[1:-1], str(written)], check=True)
    assert zipfile.is_zipfile(written)


def test_init_container_command_wants_one_path():
    result = subprocess.run([sys.executable, *CARRY[1:-1]], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr == "usage: python -m tpujob_contract.launch_archive FILE\n"


def test_every_module_runs_on(python):
    """Imports each, and calls what has needed a newer one."""
    program = (
        "import datetime, importlib, pkgutil, tpujob_contract, tpujob_launcher\n"
        "for package in (tpujob_contract, tpujob_launcher):\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if not module.name.endswith('__main__'):\n"
        "            importlib.import_module(module.name)\n"
        "from tpujob_contract.reports.report import attempt_name\n"
        "print(attempt_name(datetime.datetime.fromtimestamp(0, datetime.timezone.utc), '1.0-9f3a'))\n"
    )
    sources = [str(Path(package.__path__[0]).parent) for package in (tpujob_contract, tpujob_launcher)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sources)}
    done = subprocess.run([python, "-c", program], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "attempts/19700101T000000Z-9f3a.json\n"), done.stderr
