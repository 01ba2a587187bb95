"""`job.split`: every item on one process, with the real webdataset as the loader of one's own."""

import io
import itertools
import tarfile
from pathlib import Path

import pytest

from tests.harness.processes import Run, start
from tpujob_contract import ExitCode
from tpujob_sdk.place import own_part
from tpujob_trainer.distributed import kv_store
from tpujob_trainer.values.errors import ConfigurationError

LOOP = str(Path(__file__).parent / "split_loop.py")


@pytest.fixture
def tars(tmp_path: Path) -> str:
    for tar in range(4):
        with tarfile.open(tmp_path / f"data-{tar:03d}.tar", "w") as file:
            for number in range(3):
                content = f"{tar}.{number}".encode()
                member = tarfile.TarInfo(f"{number:03d}.txt")
                member.size = len(content)
                file.addfile(member, io.BytesIO(content))
    return str(tmp_path / "data-{000..003}.tar")


def attempt(folder: Path, processes: int, **extra: str) -> Run:
    return start(
        folder / "run", processes=processes, devices=1, config={}, program=(LOOP,), extra={"TPUJOB_CONFIG": "", **extra}
    )


def seen(log: str, word: str) -> list[str]:
    return [line.removeprefix(word).strip() for line in log.splitlines() if line.startswith(word)]


@pytest.mark.processes
def test_each_tar_is_read_by_one_process(tmp_path: Path, tars: str) -> None:
    with attempt(tmp_path, 3, TARS=tars) as run:
        assert run.wait() == [0] * 3, run.explain()
    found = [seen(member.log, "sample") for member in run.members]
    assert all(found)
    assert sorted(itertools.chain(*found)) == [f"{tar}.{number}" for tar in range(4) for number in range(3)]
    held_out = [number for member in run.members for line in seen(member.log, "held out") for number in line.split()]
    assert sorted(held_out) == ["0", "1", "2", "3", "4"]


@pytest.mark.processes
def test_other_order_on_one_process_is_refused(tmp_path: Path, tars: str) -> None:
    with attempt(tmp_path, 2, TARS=tars, REVERSED="yes") as run:
        assert run.wait() == [ExitCode.CONFIGURATION] * 2, run.explain()
    assert "job.split: process 0 has 4 items, this process 4 other ones; sort them" in run[1].termination_message


def test_alone_all_are_ones_own_and_none_at_all_are_refused() -> None:
    assert own_part("abc", kv_store.alone(), "split/1") == ["a", "b", "c"]
    with pytest.raises(ConfigurationError, match=r"job\.split: 0 items for 1 processes; split smaller parts"):
        own_part([], kv_store.alone(), "split/2")
