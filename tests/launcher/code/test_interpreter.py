"""Patched packages are those of the Python that the command runs with, which need not be the launcher's."""

import sys
import venv
from pathlib import Path

import pytest

from tests.launcher.code.test_python_path import installed_code
from tests.launcher.conftest import Launch
from tpujob_launcher.code import interpreter


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The python of an environment that has a package of its own."""
    venv.create(tmp_path / "other", with_pip=False)
    (site,) = (tmp_path / "other" / "lib").glob("python*/site-packages")
    (site / "elsewhere").mkdir()
    (site / "elsewhere" / "__init__.py").write_text("")
    (site / "elsewhere" / "part.py").write_text("PATCHED = False")
    return tmp_path / "other" / "bin" / "python"


def script(folder: Path, first_line: str) -> str:
    file = folder / "script"
    file.write_text(f"{first_line}\nimport elsewhere.part\nprint(elsewhere.part.PATCHED)\n")
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize("kind", ["by its path", "by PATH", "script", "script by env"])
def test_package_of_another_python_is_patched(launch: Launch, tmp_path: Path, other: Path, kind: str) -> None:
    environ = installed_code(tmp_path, patches__elsewhere__part="PATCHED = True")
    environ["PATH"] = f"{other.parent}:/usr/bin:/bin"
    program = ("-c", "import elsewhere.part; print(elsewhere.part.PATCHED)")
    command = {
        "by its path": (str(other), *program),
        "by PATH": ("python", *program),
        "script": (script(tmp_path, f"#!{other}"),),
        "script by env": (script(tmp_path, "#!/usr/bin/env python"),),
    }[kind]
    launched = launch(*command, environ=environ)
    assert launched.wait() == 0, launched.stderr
    assert launched.stdout == "True\n"
    assert "patch elsewhere/part.py in the place of" in launched.stderr


@pytest.mark.parametrize("command", [(), ("true",), ("/nowhere/python",), ("no-such-program",)], ids=str)
def test_other_programs_leave_it_to_the_launcher(command: tuple[str, ...]) -> None:
    found = interpreter.search_path(command, {"PATH": "/usr/bin:/bin"})
    assert found == [entry for entry in sys.path if entry and Path(entry).is_dir()]
