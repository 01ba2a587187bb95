"""`spec.packages`: real pips, a real virtual environment without one, and wheels that the test makes."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fakes import Exchange, HttpServer
from tests.harness.wheels import wheel
from tests.launcher.conftest import Launch
from tpujob_contract import ExitCode
from tpujob_contract.requirement_pins import read_pins
from tpujob_launcher.code.archive import CodeRefused
from tpujob_launcher.code.packages import install_packages

WHEEL = "gadget-1.0-py3-none-any.whl"
PROGRAM = (sys.executable, "-c", "import gadget; print(gadget.NUMBER)")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the program starts, with wheels and pins."""
    (tmp_path / "requirements.txt").write_text(wheel(tmp_path / "wheels"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


@pytest.mark.parametrize("requirements", ["requirements.txt", ""], ids=["pinned", "wheels alone"])
def test_program_imports_what_neither_image_nor_code_has(launch: Launch, folder: Path, requirements: str) -> None:
    environ = {"TPUJOB_WHEELS": "wheels", "TPUJOB_REQUIREMENTS": requirements}
    launched = launch(*PROGRAM, environ=environ)
    assert launched.wait() == 0, launched.stderr
    assert launched.stdout == "1\n"
    assert "packages: 1 in " in launched.stderr


def test_modules_of_the_job_are_not_taken_for_those_of_pip(folder: Path) -> None:
    """Pip starts in the folder of the code, which may have a module of any name."""
    for name in ("queue", "email", "pip"):
        (folder / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    environ = {**os.environ, "TPUJOB_WHEELS": "wheels", "PYTHONPATH": str(folder)}
    target, _ = install_packages(environ, PROGRAM, None)
    assert target is not None
    assert (target / "gadget" / "__init__.py").is_file()


def test_wrong_digest_is_refused_and_the_program_does_not_start(launch: Launch, folder: Path) -> None:
    wheel(folder / "wheels", needs="other")
    launched = launch(*PROGRAM, environ={"TPUJOB_WHEELS": "wheels", "TPUJOB_REQUIREMENTS": "requirements.txt"})
    assert launched.wait() == ExitCode.CONFIGURATION
    assert "spec.packages: pip: ERROR: THESE PACKAGES DO NOT MATCH THE HASHES" in launched.stderr
    assert launched.stdout == ""


REFUSED = {
    "no such file": (
        {"TPUJOB_REQUIREMENTS": "pins.txt"},
        "spec.packages.requirements: .*/pins.txt is not there; is it in",
    ),
    "no such folder": ({"TPUJOB_WHEELS": "wheel"}, "spec.packages.wheels: .*/wheel is not there"),
    "nothing in it": ({"TPUJOB_WHEELS": "empty"}, "spec.packages.wheels: there is no .whl file in .*/empty"),
    "not pinned": (
        {"TPUJOB_REQUIREMENTS": "loose.txt", "TPUJOB_WHEELS": "wheels"},
        "spec.packages.requirements: .*/loose.txt: 'gadget' is not NAME==VERSION --hash",
    ),
    "not text": (
        {"TPUJOB_REQUIREMENTS": f"wheels/{WHEEL}"},
        "spec.packages.requirements: .*/gadget-1.0-py3-none-any.whl: .*decode",
    ),
    "a dependency that is missing": (
        {"TPUJOB_REQUIREMENTS": "needy.txt", "TPUJOB_WHEELS": "needy"},
        "spec.packages: pip: .*(other|--require-hashes)",
    ),
}


@pytest.mark.parametrize(("environ", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_installed_is_named(folder: Path, environ: dict[str, str], said: str) -> None:
    (folder / "empty").mkdir()
    (folder / "loose.txt").write_text("gadget\n")
    (folder / "needy.txt").write_text(wheel(folder / "needy", 3, needs="other"))
    with pytest.raises(CodeRefused, match=said) as refused:
        install_packages(environ, PROGRAM, None)
    assert refused.value.exit_code == ExitCode.CONFIGURATION


@pytest.fixture
def archive(folder: Path) -> str:
    """A line that pins a source archive whose code, if it runs, writes a file; beside the wheels."""
    files = {
        "PKG-INFO": b"Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n",
        "pyproject.toml": b"[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n",
        "backend.py": f"open({str(folder / 'ran')!r}, 'w')\n".encode(),
    }
    path = folder / "wheels" / "evil-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        for name, content in files.items():
            member = tarfile.TarInfo(f"evil-1.0/{name}")
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    return f"--hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


DOORS = {
    "an option of the file": "--no-binary :all:\nevil==1.0 {hash}\n",
    "an option within a marker": "evil==1.0 ; python_version > '3' --no-binary evil {hash}\n",
    "an option on a further line": "evil==1.0 \\\n--config-settings=a=b {hash}\n",
    "an address": "evil @ file://{folder}/wheels/evil-1.0.tar.gz {hash}\n",
    "a bare address": "file://{folder}/wheels/evil-1.0.tar.gz {hash}\n",
    "a path": "{folder}/wheels/evil-1.0.tar.gz {hash}\n",
    "another file": "--requirement other.txt\n",
    "an editable folder": "-e {folder}\n",
    "an index": "--index-url http://127.0.0.1:9\nevil==1.0 {hash}\n",
    "a variable": "evil==1.0 ; '${{OPTION}}' > '' {hash}\n",
    "nothing but a pin": "evil==1.0 {hash}\n",
}


@pytest.mark.parametrize("text", DOORS.values(), ids=DOORS.keys())
def test_no_line_of_the_file_runs_a_source_archive(folder: Path, archive: str, text: str) -> None:
    (folder / "requirements.txt").write_text(text.format(folder=folder, hash=archive))
    with pytest.raises(CodeRefused, match=r"spec\.packages") as refused:
        install_packages({"TPUJOB_REQUIREMENTS": "requirements.txt", "TPUJOB_WHEELS": "wheels"}, PROGRAM, None)
    assert refused.value.exit_code == ExitCode.CONFIGURATION
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("name", ["REQUIREMENT", "CONSTRAINT", "EDITABLE", "NO_BINARY"])
@pytest.mark.parametrize("source", ["variable", "pip.conf"])
def test_no_setting_of_pip_runs_a_source_archive(folder: Path, archive: str, name: str, source: str) -> None:
    (folder / "other.txt").write_text(f"--no-binary :all:\nevil==1.0 {archive}\n")
    shutil.unpack_archive(folder / "wheels" / "evil-1.0.tar.gz", folder, filter="data")
    value = {"NO_BINARY": ":all:", "EDITABLE": str(folder / "evil-1.0")}.get(name, str(folder / "other.txt"))
    (folder / "pip.conf").write_text(f"[install]\n{name.lower().replace('_', '-')} = {value}\n")
    if source == "variable":
        environ = {f"PIP_{name}": value, "TPUJOB_REQUIREMENTS": "requirements.txt"}
    else:
        environ = {"PIP_CONFIG_FILE": str(folder / "pip.conf")}
    with contextlib.suppress(CodeRefused):
        install_packages({"TPUJOB_WHEELS": "wheels", **environ}, PROGRAM, None)
    assert not (folder / "ran").exists()


def test_what_the_usual_tools_write_is_read() -> None:
    digest = f"sha256:{'a' * 64}"
    text = f"""# This file was autogenerated by uv via the following command:
jax[tpu]==0.7.2 ; python_full_version >= '3.12' and sys_platform == 'linux' \\
    --hash={digest} \\
    --hash={digest}
    # via
    #   flax (pyproject.toml)
old-name==1!2.0+local.1 --hash=sha512:{"b" * 128}  # a comment
"""
    assert read_pins(text) == [
        f"jax[tpu]==0.7.2 ; python_full_version >= '3.12' and sys_platform == 'linux' --hash={digest} --hash={digest}",
        f"old-name==1!2.0+local.1 --hash=sha512:{'b' * 128}",
    ]


def test_index_out_of_reach_is_tried_again_by_the_job(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpujob_launcher.code.patience.time.sleep", lambda seconds: None)
    environ = {
        "TPUJOB_REQUIREMENTS": "requirements.txt",
        "PIP_INDEX_URL": "http://user:secret@127.0.0.1:9/simple",
        "PIP_RETRIES": "1",
    }
    with pytest.raises(CodeRefused, match=r"spec\.packages: .*; asked 5 times") as refused:
        install_packages(environ, PROGRAM, None)
    assert refused.value.exit_code == 1
    assert "secret" not in str(refused.value)


def test_no_index_is_asked_for_what_wheels_have(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(request: Exchange) -> None:
        asked.append(request.path)
        request.reply(404)

    with contextlib.closing(HttpServer(answer)) as server:
        environ = {**os.environ, "PIP_INDEX_URL": f"http://{server.host}/simple", "TPUJOB_WHEELS": "wheels"}
        place, _ = install_packages({**environ, "TPUJOB_REQUIREMENTS": "requirements.txt"}, PROGRAM, None)
        assert asked == []
        assert place is not None
        shutil.rmtree(place)
        with pytest.raises(CodeRefused, match="gadget"):
            install_packages({**environ, "TPUJOB_WHEELS": "", "TPUJOB_REQUIREMENTS": "requirements.txt"}, PROGRAM, None)
    assert asked


def test_environment_without_pip_uses_that_of_its_python(folder: Path) -> None:
    """As in the trainer's image, whose virtual environment has none."""
    venv.create(folder / "venv", with_pip=False)
    python = str(folder / "venv" / "bin" / "python")
    target, lines = install_packages({"TPUJOB_WHEELS": "wheels"}, [python, "-m", "gadget"], None)
    assert target is not None
    assert python in lines[0]
    assert run([python, "-c", "import gadget; print(gadget.NUMBER)"], target) == "1\n"


def run(command: Sequence[str], path: Path) -> str:
    return subprocess.run(command, env={"PYTHONPATH": str(path)}, capture_output=True, text=True, check=True).stdout


def test_processes_of_a_machine_and_later_attempts_install_once(launch: Launch, folder: Path) -> None:
    environ = {"TPUJOB_WHEELS": "wheels"}
    together = [launch(*PROGRAM, environ=environ) for _ in range(3)]
    assert [launched.wait() for launched in together] == [0, 0, 0]
    said = [next(line for line in launched.stderr.splitlines() if "packages: 1" in line) for launched in together]
    assert sorted("are there already" in line for line in said) == [False, True, True]
    wheel(folder / "wheels", 1, needs="other")  # other bytes under the same name
    changed = launch(*PROGRAM, environ=environ)
    assert changed.wait() == 0
    assert "are there already" not in changed.stderr


def test_folder_that_others_may_write_to_is_refused(folder: Path) -> None:
    made = folder / "tmp" / f"tpujob-packages-{os.geteuid()}"
    made.mkdir()
    made.chmod(0o777)
    with pytest.raises(CodeRefused, match=r"spec\.packages: .* is not this user's alone; remove it"):
        install_packages({"TPUJOB_WHEELS": "wheels"}, PROGRAM, None)


def test_what_was_interrupted_is_made_anew(folder: Path) -> None:
    target, _ = install_packages({"TPUJOB_WHEELS": "wheels"}, PROGRAM, None)
    assert target is not None
    target.rename(target.with_suffix(".unfinished"))
    (target.with_suffix(".unfinished") / "gadget" / "__init__.py").write_text("NUMBER = 'cut'\n")
    again, _ = install_packages({"TPUJOB_WHEELS": "wheels"}, PROGRAM, None)
    assert again == target
    assert (target / "gadget" / "__init__.py").read_text() == "NUMBER = 1\n"
