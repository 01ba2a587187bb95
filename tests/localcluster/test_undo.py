"""What a cluster changed is undone from its journal, once or twice, and nothing else is touched."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.localcluster.undo import Journal, end_process, start_time, undo


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as process:
        yield process
        process.kill()


def test_last_change_is_undone_first(journal: Journal, tmp_path: Path) -> None:
    setting = tmp_path / "setting"
    for content in ("first", "second"):
        journal.note("setting", file=str(setting), content=content)

    undo(journal)

    assert setting.read_text() == "first"


def test_undoing_twice_is_harmless(journal: Journal, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    journal.note("folder", folder=nowhere)
    journal.note("link", name="tpujobnowhere")
    journal.note("mounts", directory=nowhere)
    journal.note("shims", socket=nowhere, state=nowhere)
    journal.note("traces", directory=nowhere, network="tpujob-nowhere")
    journal.note("control group", name="tpujob-nowhere")
    journal.note("process", pid=str(os.getpid()), started="0")
    entries = journal.file.read_bytes()

    undo(journal)
    journal.file.write_bytes(entries)
    undo(journal)

    assert journal.entries() == []


def test_line_cut_short_by_a_crash_is_left_out(journal: Journal) -> None:
    journal.note("link", name="tpujobnowhere")
    with journal.file.open("a") as lines:
        lines.write('{"kind": "li')

    assert journal.entries() == [{"kind": "link", "name": "tpujobnowhere"}]


def test_folder_in_use_stays(journal: Journal, tmp_path: Path) -> None:
    (tmp_path / "shared" / "theirs").mkdir(parents=True)
    journal.note("folder", folder=str(tmp_path / "shared"))

    undo(journal)

    assert (tmp_path / "shared" / "theirs").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_process_is_ended_only_if_it_is_the_same(sleeper: subprocess.Popen[bytes]) -> None:
    end_process(str(sleeper.pid), "1")
    assert sleeper.poll() is None

    end_process(str(sleeper.pid), start_time(sleeper.pid))
    assert start_time(sleeper.pid) == ""
