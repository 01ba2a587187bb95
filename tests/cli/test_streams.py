"""Readers of the command line's output that go away, names that no encoding has, and signals before a run starts."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TPUJOB = (sys.executable, "-m", "tpujob")
LINES = "for number in range(400): print('x' * 500, flush=True)\nopen('done', 'w')\n"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "lines.py").write_text(LINES)
    return tmp_path


def test_run_goes_on_after_its_reader(program: Path) -> None:
    command = [*TPUJOB, "run", "lines.py", "--accelerator", "cpu:1x1"]
    with subprocess.Popen(command, cwd=program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        run.stdout.readline()
        run.stdout.close()
        assert run.stderr is not None
        said = run.stderr.read()
    assert (run.returncode, said) == (0, b"")
    assert (program / "done").exists()


@pytest.mark.parametrize("output", ["/dev/full", "closed"])
def test_run_goes_on_without_an_output(program: Path, output: str) -> None:
    command = " ".join([*TPUJOB, "run", "lines.py", "--accelerator", "cpu:1x1"])
    where = ">&-" if output == "closed" else f"> {output}"
    done = subprocess.run(["/bin/sh", "-c", f"{command} {where}"], cwd=program, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (program / "done").exists()


def test_no_description_of_a_terminal_ends_a_run(program: Path) -> None:
    odd = {
        "COLUMNS": "9" * 5000,
        "LINES": "9" * 5000,
        "TERM": "x" * 5000,
        "FORCE_COLOR": "x",
        "LANG": "xx",
        "TZ": "x/y",
    }
    command = [*TPUJOB, "run", "lines.py", "--accelerator", "cpu:1x1"]
    done = subprocess.run(command, cwd=program, capture_output=True, env={**os.environ, **odd}, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (program / "done").exists()


@pytest.mark.parametrize("verb", ["explain", "--help", "run --help", "--version"])
@pytest.mark.parametrize("where", ["> /dev/full", "| true"])
def test_no_verb_ends_with_a_traceback(tmp_path: Path, verb: str, where: str) -> None:
    command = f"{' '.join(TPUJOB)} {verb} {where}"
    done = subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_name_that_is_not_of_the_encoding_is_printed(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/folder"
    os.mkdir(folder)  # noqa: PTH102 - pathlib has no names of bytes
    Path(os.fsdecode(folder + b"/ok.txt")).write_text("a line\n")
    Path(os.fsdecode(folder + b"/caf\xe9.txt")).write_text("a line\n")
    for words in (("from-folder", "folder", "out"), ("inspect", "folder")):
        done = subprocess.run([*TPUJOB, "data", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr
        assert "fault of tpujob" not in done.stderr
        assert (done.returncode, "caf\\udce9" in done.stderr) == (
            (0, False) if words[0] == "from-folder" else (78, True)
        )


@pytest.mark.parametrize("words", ["data inspect {}", "run {}.py", "check {}.yaml", "render {}.yaml"])
def test_name_longer_than_the_file_system_has_is_one_line(tmp_path: Path, words: str) -> None:
    command = [*TPUJOB, *words.format("x" * 300).split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode in (77, 78)
    assert "x" * 300 in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["random", "types", "queue", "secrets"])
def test_module_of_the_current_folder_is_none_of_pythons(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("def mine(): return 1\n")
    (tmp_path / "a.txt").write_text("some text\n" * 9)
    # As the installed program: `-m` would put the folder first itself.
    command = [sys.executable, "-P", *TPUJOB[1:], "data", "inspect", "a.txt"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_before_a_run_starts_is_answered_with_a_word(tmp_path: Path, number: signal.Signals) -> None:
    os.mkfifo(tmp_path / "job.yaml")
    command = [*TPUJOB, "run", "job.yaml"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        with (tmp_path / "job.yaml").open("w"):  # opened once the command waits for its content
            run.send_signal(number)
        assert run.stderr is not None
        assert run.stderr.read() == f"tpujob: ended by signal {int(number)}\n"
    assert run.returncode == 128 + number
