"""What the release before has left: its checkpoint is restored, and its launcher starts trainers of this one."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from tests.harness import processes
from tpujob_contract.exit_codes import ExitCode

pytestmark = pytest.mark.processes

SAVED = Path(__file__).parent / "saved_by_0_1"
"""By two processes of four devices each: steps 1 to 25 of 50, and the losses of all 50."""


@pytest.mark.parametrize("mesh", [{}, {"fsdp": 2, "tensor": 2}], ids=["mesh as chosen", "data 2, fsdp 2, tensor 2"])
def test_run_goes_on_from_an_earlier_checkpoint(tmp_path, mesh):
    with tarfile.open(SAVED / "checkpoints.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    shutil.copytree(SAVED / "corpus", tmp_path / "corpus")
    block = {
        "model": {"layers": 2, "embedDim": 16, "heads": 2, "tieEmbeddings": True},
        "mesh": mesh,
        "data": {"path": f"{tmp_path}/corpus/*.parquet"},
        "steps": 50,
        "sequenceLength": 32,
        "batchSize": 8,
        "checkpoint": {"everySteps": 25, "keep": 50},
        "logEverySteps": 1,
        "compileCache": False,
    }
    with processes.start(
        tmp_path / "logs",
        processes=1,
        devices=8,
        config=block,
        checkpoint_dir=tmp_path / "checkpoints",
    ) as run:
        assert run.wait() == [0], run.explain()
    assert "Restored the checkpoint of step 25" in run[0].log
    told = {int(step): loss for step, loss in json.loads((SAVED / "losses.json").read_text()).items()}
    assert list(run[0].losses) == list(range(26, 51))
    # Losses near 5.7 are printed with four decimals.
    assert run[0].losses == pytest.approx({step: told[step] for step in range(26, 51)}, abs=2e-4)


EARLIER_LAUNCHER = Path(__file__).parents[1] / "released" / "operator-0.1.tar.xz"


@pytest.mark.parametrize("is_everywhere", [True, False], ids=["in all pods", "in one pod"])
def test_trainers_of_this_release_under_launchers_of_the_one_before(tmp_path, is_everywhere):
    """A JobSet that an operator of 0.1 made has its launcher, and maybe a newer image under the same tag."""
    with tarfile.open(EARLIER_LAUNCHER) as sources:
        sources.extractall(tmp_path / "0.1", filter="data")
    path = str(tmp_path / "0.1" / "contract" / "src")
    module = "runpy.run_module('tpujob_contract.launch', None, '__main__')"
    earlier = ("-c", f"import runpy, sys; sys.path.insert(0, {path!r}); {module}", "--")
    with processes.start(
        tmp_path / "logs",
        processes=2,
        devices=1,
        config={"steps": 4, "save_every": 2},
        program=("-m", "tests.multiprocess.counting_run"),
        launchers=[earlier if is_everywhere else processes.LAUNCH, earlier],
        startup_seconds=int(processes.PATIENCE_SECONDS) if is_everywhere else 20,
    ) as run:
        codes = run.wait()
    if is_everywhere:
        assert codes == [0, 0], run.explain()
        assert "no launcher, or one of an earlier release: who is missing or fails first" in run[1].log
        return
    assert codes[0] == ExitCode.PEERS_MISSING, run.explain()
    named = "1 of 2 processes did not come within 20 s: process 1 (slice 0, host 1); see whether"
    assert named in run[0].termination_message
    assert "have the image of process 0" in run[0].termination_message
    assert codes[1] != 0
