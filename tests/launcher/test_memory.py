"""A program that the kernel kills for its memory is said to be."""

from pathlib import Path

import pytest

from tpujob_contract import environment
from tpujob_launcher.reports.termination_message import TerminationMessage
from tpujob_launcher.supervise.memory import Memory


@pytest.mark.parametrize(
    ("part", "events", "limit"),
    [("", "memory.events", "memory.max"), ("memory", "memory.oom_control", "memory.limit_in_bytes")],
    ids=["version 2", "version 1"],
)
@pytest.mark.parametrize("name", ["", "user.slice/run"], ids=["of a container", "of a session"])
def test_kill_by_the_kernel_is_named_with_the_limit(
    tmp_path: Path, part: str, events: str, limit: str, name: str
) -> None:
    folder = tmp_path / "cgroup" / part / name
    folder.mkdir(parents=True)
    (tmp_path / "own").write_text(f"4:cpu,memory:/{name if part else ''}\n0::/{'' if part else name}\n")
    (folder / limit).write_text("314572800\n")
    (folder / events).write_text("low 0\noom 1\noom_kill 2\n")
    memory = Memory(tmp_path / "cgroup", tmp_path / "own")
    assert memory.diagnostics() == []
    (folder / events).write_text("low 0\noom 2\noom_kill 3\n")
    said = f"the kernel killed it because the memory limit of 300 MiB was reached ({limit} of its cgroup)"
    assert memory.diagnostics() == [said]


def test_machine_without_cgroups_names_nothing(tmp_path: Path) -> None:
    assert Memory(tmp_path / "cgroup", tmp_path / "own").diagnostics() == []


def test_name_that_no_encoding_has_is_written_with_escapes(tmp_path: Path) -> None:
    message = TerminationMessage({environment.TERMINATION_LOG: str(tmp_path / "message")})
    message.last_line = "last \udce9"
    message.write(77, ["caf\udce9 is not there"])
    assert message.text.endswith("caf\\udce9 is not there\nlast \\udce9")
