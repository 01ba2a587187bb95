"""Decoding in processes beside the loop: the order, the position, and whose fault an end was."""

import os
import signal
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import pytest

from tools.localcluster.waiting import wait_for
from tpujob_launcher.supervise.processes import descendants
from tpujob_sdk.decoding import Decoding, require_importable
from tpujob_trainer.data.formats.webdataset import Sample
from tpujob_trainer.values.errors import ConfigurationError

ROWS = 3


class Numbers:
    """Samples that are called by their number, from a position on."""

    def __init__(self, taken: int = 0) -> None:
        self.taken = taken
        self.is_closed = False

    @property
    def state(self) -> np.ndarray:
        return np.array([self.taken])

    def __next__(self) -> list[Sample]:
        first, self.taken = self.taken * ROWS, self.taken + 1
        return [Sample(str(first + row), {"txt": str(first + row).encode()}) for row in range(ROWS)]

    def close(self) -> None:
        self.is_closed = True


def squared(sample: Sample) -> tuple[int, int]:
    return int(sample.fields["txt"]) ** 2, os.getpid()


def refuses_seven(sample: Sample) -> int:
    if sample.key == "7":
        raise ValueError("no picture")
    return int(sample.key)


def is_killed_at_four(sample: Sample) -> int:
    if sample.key == "4":
        os.kill(os.getpid(), signal.SIGKILL)
    return int(sample.key)


def test_results_are_in_order_and_made_elsewhere() -> None:
    decoding = Decoding(Numbers(), squared, workers=2)
    found = [next(decoding) for _ in range(4)]
    decoding.close()
    assert [value for batch in found for value, _ in batch] == [number**2 for number in range(4 * ROWS)]
    assert os.getpid() not in {pid for batch in found for _, pid in batch}


def test_the_position_is_that_of_what_was_taken() -> None:
    source = Numbers()
    decoding = Decoding(source, refuses_seven, workers=1, ahead=1)
    assert decoding.state.tolist() == [0]
    assert next(decoding) == [0, 1, 2]
    assert (decoding.state.tolist(), source.taken) == ([1], 2)
    decoding.close()
    assert source.is_closed
    again = Decoding(Numbers(int(decoding.state[0])), refuses_seven, workers=1)
    assert next(again) == [3, 4, 5]
    again.close()


def test_what_a_function_raises_comes_with_the_key_when_its_batch_does() -> None:
    decoding = Decoding(Numbers(), refuses_seven, workers=2)
    assert [next(decoding), next(decoding)] == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ValueError, match="no picture") as error:
        next(decoding)
    decoding.close()
    assert error.value.__notes__[-1] == "In refuses_seven of the sample '7'."


def test_a_killed_process_is_named() -> None:
    decoding = Decoding(Numbers(), is_killed_at_four, workers=1)
    assert next(decoding) == [0, 1, 2]
    with pytest.raises(BrokenProcessPool) as error:
        next(decoding)
    decoding.close()
    assert "ended from outside" in error.value.__notes__[-1]


def test_no_process_is_left() -> None:
    decoding = Decoding(Numbers(), squared, workers=2)
    pids = {pid for _ in range(4) for _, pid in next(decoding)}
    assert pids <= set(descendants(os.getpid()))
    decoding.close()
    wait_for("the processes to end", lambda: not pids & set(descendants(os.getpid())), timeout_seconds=60)


def test_a_lambda_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"samples\.map: .*<lambda> cannot be sent to another process"):
        require_importable(lambda sample: sample)


def test_a_function_within_a_function_is_refused() -> None:
    def inner(sample: Sample) -> Sample:
        return sample

    with pytest.raises(ConfigurationError, match="define it at the top of a module"):
        require_importable(inner)


KILLED = """
import os
import signal
import tests.sdk.test_decoding as this

if __name__ == "__main__":
    decoding = this.Decoding(this.Numbers(), this.squared, workers=2)
    print(*{pid for _ in range(4) for _, pid in next(decoding)}, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


PROGRAM = """
import tests.sdk.test_decoding as this
from tpujob_sdk import run

def doubled(sample):
    return 2 * int(sample.key)

def train(job):
    decoding = this.Decoding(this.Numbers(), doubled, workers=2)
    print(next(decoding))
    decoding.close()

run(train)
"""


def ran(program: Path, content: str) -> subprocess.CompletedProcess[str]:
    program.write_text(content)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run([sys.executable, str(program)], env=env, capture_output=True, text=True, timeout=300)


def test_a_program_that_ends_with_run_needs_no_guard(tmp_path: Path) -> None:
    done = ran(tmp_path / "program.py", PROGRAM)
    assert (done.returncode, done.stdout) == (0, "[0, 2, 4]\n"), done.stderr


def test_no_process_outlives_a_killed_loop(tmp_path: Path) -> None:
    done = ran(tmp_path / "loop.py", KILLED)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    assert pids
    wait_for("the processes to end", lambda: not any(map(is_running, pids)), timeout_seconds=60)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False
