"""Plain mistakes are found without a device, each with the exit code with which the run would end."""

import dataclasses
import fcntl
import json
import os
import subprocess

import pytest

from tpujob_contract import ExitCode
from tpujob_contract.job_facts import Place
from tpujob_trainer.checkpoint.lock import LOCK, OWNER, model_differences
from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.tasks.prerequisites import check_prerequisites

PLACE = Place(devices=2, slices=1, platform="cpu", devices_here=2)


@pytest.fixture
def desk(tmp_path):
    (tmp_path / "a.txt").write_text("one line\nanother\n")
    return tmp_path


def found(desk, *, is_run=True, has_all_packages=True, data=None, place=PLACE, **block):
    config = {
        "model": {"preset": "tiny"},
        "data": {"path": str(desk / "a.txt"), **(data or {})},
        "steps": 1,
        "batchSize": 2,
        "sequenceLength": 32,
    }
    problems, warnings = check_prerequisites(
        parse_config({key: value for key, value in {**config, **block}.items() if value is not None}),
        checkpoint_dir=str(desk / "checkpoints"),
        owner="team/job",
        place=place,
        is_run=is_run,
        has_all_packages=has_all_packages,
    )
    assert warnings == ()
    return problems


def test_a_right_job_has_no_problem(desk):
    assert found(desk) == ()


@pytest.mark.parametrize(
    ("block", "words", "code"),
    [
        ({"data": {"path": "/nowhere/*.txt"}}, "spec.trainer.data.path: '/nowhere/*.txt' matches no file", 77),
        ({"data": {"tokenizer": "/nowhere"}}, "spec.trainer.data.tokenizer: '/nowhere' is not there", 77),
        ({"data": {"tokenizer": "gpt2"}}, "a model of the Hugging Face hub is hf://gpt2", 77),
        ({"batchSize": 3}, "spec.trainer.batchSize: 3", 78),
        ({"model": {"preset": "tiny", "layers": 500, "embedDim": 16384}}, "weights and optimizer need ", 78),
    ],
    ids=["path", "tokenizer", "name on the hub", "rows", "memory"],
)
def test_mistakes_in_the_block_are_problems(desk, block, words, code):
    (problem,) = found(desk, **block)
    assert problem.message.startswith(words) or words in problem.message
    assert problem.exit_code == code


CODE = """
import json

def text(row):
    return json.dumps(row)

NUMBER = 3
"""


@pytest.fixture
def code(desk, monkeypatch):
    (desk / "own_code.py").write_text(CODE)
    (desk / "own_needs.py").write_text("import nobody_has_it\n")
    (desk / "own_fails.py").write_text("raise OSError('no licence')\n")
    monkeypatch.syspath_prepend(desk)


OWN = {
    # name: (block, how the problem begins, whether it is one where the code may come with the pods)
    "no such name": ({"loss": "own_code:los"}, "spec.trainer.loss: own_code has no 'los'; it has NUMBER", True),
    "no function": (
        {"evaluation": {"everySteps": 1, "metrics": [{"name": "own_code:text"}, {"name": "own_code:NUMBER"}]}},
        "spec.trainer.evaluation.metrics[1].name: own_code:NUMBER is a int",
        True,
    ),
    "no module": ({"callbacks": [{"name": "no_such:A"}]}, "spec.trainer.callbacks[0].name: no module named", False),
    "no module of the module's": (
        {"optimizer": {"custom": "own_needs:make"}},
        "spec.trainer.optimizer.custom: own_needs cannot be imported: ModuleNotFoundError",
        False,
    ),
    "a failing module": ({"model": {"custom": "own_fails:M"}}, "spec.trainer.model.custom: own_fails cannot be", True),
    "of the evaluation": (
        {"evaluation": {"everySteps": 1, "data": {"path": "a.txt", "custom": "own_code:b", "columns": ["text"]}}},
        "spec.trainer.evaluation.data.custom: own_code has no 'b'",
        True,
    ),
}


@pytest.mark.usefixtures("code")
@pytest.mark.parametrize(("block", "words", "always"), OWN.values(), ids=OWN.keys())
def test_own_code_is_imported_before_the_start(desk, block, words, always):
    (problem,) = found(desk, **block)
    assert problem.message.startswith(words)
    assert problem.exit_code == ExitCode.CONFIGURATION
    for more in ({"is_run": False}, {"has_all_packages": False}):
        assert bool(found(desk, **more, **block)) == always


def test_both_data_and_tokenizer_are_named_at_once(desk):
    assert len(found(desk, data={"path": "/nowhere", "tokenizer": "/nowhere"})) == 2


def test_addresses_are_not_asked_for_a_job_of_another_place(desk, caplog):
    caplog.set_level("DEBUG", "tpujob_trainer")
    assert found(desk, is_run=False, data={"path": "gs://no-bucket/x", "tokenizer": "gs://no-bucket/t"}) == ()
    assert caplog.records == []


def of_another_job(folder):
    (folder / OWNER).write_text(json.dumps({"owner": "team/other"}))


def without_a_word(folder):
    (folder / OWNER).write_text("{")


@pytest.mark.parametrize(
    ("make", "words"),
    [(of_another_job, "belongs to team/other, and this job is team/job"), (without_a_word, "does not say whose")],
)
def test_a_directory_of_another_job_is_a_problem(desk, make, words):
    (desk / "checkpoints").mkdir()
    make(desk / "checkpoints")
    (problem,) = found(desk)
    assert words in problem.message
    assert problem.exit_code == ExitCode.CONFIGURATION


def test_a_file_in_the_place_of_the_directory_is_a_problem(desk):
    (desk / "checkpoints").write_text("")
    (problem,) = found(desk)
    assert "is not a directory" in problem.message


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can mount a small file system")
def test_a_full_disk_ends_an_extraction_before_its_workers_start(desk):
    place = desk / "checkpoints"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], check=True)
    try:
        batch = {"task": "embed", "steps": None}
        assert found(desk, **batch) == ()
        (place / "filler").write_bytes(bytes(256 << 10))
        (problem,) = found(desk, **batch)
        assert problem.message == (
            f"spec.checkpointDir: the disk of {place} is full (No space left on device); make room there, another "
            "attempt may succeed"
        )
        assert problem.exit_code == 1
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_live_run_is_named(desk):
    (desk / "checkpoints").mkdir()
    with (desk / "checkpoints" / LOCK).open("w") as lock:
        lock.write("pid 7 on host here\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        (problem,) = found(desk)
    assert "another run is writing" in problem.message
    assert "pid 7 on host here; end it first (Ctrl-C in its `tpujob run`" in problem.message
    assert found(desk) == ()


def test_a_look_leaves_nothing_behind(desk):
    found(desk)
    assert os.listdir(desk) == ["a.txt"]  # noqa: PTH208 - names alone


def test_a_changed_model_is_told_by_its_fields():
    then, now = {"layers": 4, "remat": "none", "embedDim": 64}, {"layers": 3, "remat": "full", "embedDim": 64, "new": 1}
    assert model_differences(then, now, frozenset({"remat"})) == ["layers: 4 then, 3 now"]


def test_memory_of_this_machine_is_for_its_own_devices_and_not_for_chips(desk):
    """Weights of a terabyte fit no machine here, but may fit a thousand machines, or chips."""
    huge = {"model": {"layers": 400, "embedDim": 16384, "heads": 128}, "batchSize": 65536}
    everywhere = dataclasses.replace(PLACE, devices=65536, devices_here=65536)
    assert len(found(desk, place=everywhere, **huge)) == 1
    assert found(desk, place=dataclasses.replace(everywhere, devices_here=1), **huge) == ()
    assert found(desk, place=dataclasses.replace(everywhere, platform="tpu"), **huge) == ()
