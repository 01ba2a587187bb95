"""What four processes saved is restored by one and by eight, on meshes of another form, bit by bit."""

import json
import re

import pytest

from tests.harness import processes

pytestmark = pytest.mark.processes

MOVING = ("-m", "tests.multiprocess.moving_run")
SAVED_BY = (4, (4, 2))
"""Processes, and the form of their mesh of eight devices."""
STEP = 7


def run(folder, directory, count, mesh, *, save):
    with processes.start(
        folder,
        processes=count,
        devices=8 // count,
        config={"mesh": mesh, "save": save},
        checkpoint_dir=directory,
        program=MOVING,
    ) as found:
        codes = found.wait()
    assert codes == [0] * count, found.explain()
    return [json.loads(re.findall(r"fingerprints (\{.*\})", member.log)[0]) for member in found.members]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The directory, and the fingerprints that the four computed of what they had."""
    folder = tmp_path_factory.mktemp("moves")
    count, mesh = SAVED_BY
    found = run(folder / "saved", folder / "checkpoints", count, mesh, save=True)
    return folder / "checkpoints", found


def test_all_processes_find_the_same_and_save_it(saved):
    directory, found = saved
    assert found == [found[0]] * len(found)
    stored = json.loads((directory / "steps" / str(STEP) / "fingerprints" / "metadata").read_text())
    assert stored["arrays"] == found[0]
    parts = sorted(path.name for path in (directory / "steps" / str(STEP) / "state").glob("ocdbt.process_*"))
    assert parts == [f"ocdbt.process_{index}" for index in range(SAVED_BY[0])]


@pytest.mark.parametrize(("count", "mesh"), [(1, (2, 4)), (8, (1, 8))], ids=["one", "eight"])
def test_any_number_of_processes_restores_the_same_bits(saved, tmp_path, count, mesh):
    directory, found = saved
    restored = run(tmp_path / "run", directory, count, mesh, save=False)
    assert restored == [found[0]] * count
