import errno
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tpujob_trainer.checkpoint import ownership
from tpujob_trainer.checkpoint.checkpoints import Checkpoints
from tpujob_trainer.checkpoint.retention import Retention, Settings
from tpujob_trainer.distributed import kv_store
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.storage.errors import unusable
from tpujob_trainer.storage.whole import ShortAnswerError
from tpujob_trainer.values import errors


@pytest.fixture
def runtime():
    return Runtime(process_id=0, num_processes=1, attempt_id="0.0-x", host="here", coordination=kv_store.alone())


def claim(directory, runtime, owner="default/a", adopt=None):
    return ownership.claim(str(directory), owner=owner, adopt=adopt, runtime=runtime)


def owner_of(directory):
    return json.loads((directory / "owner.json").read_text())["owner"]


def test_new_directory_belongs_to_who_came_first(tmp_path, runtime):
    claim(tmp_path / "deep" / "new", runtime).close()
    assert owner_of(tmp_path / "deep" / "new") == "default/a"


@pytest.mark.parametrize("name", ["run[1]", "run*", "run?", "run#1"])
def test_pattern_as_a_directory_of_a_bucket_is_refused_before_anything_is_asked(runtime, name):
    """Orbax writes what belongs in run#1 to run."""
    with pytest.raises(errors.ConfigurationError, match=r"\Wrun\S* has \*, \?, \[, \] or #, which libraries"):
        ownership.claim(f"gs://b/{name}", owner="default/one", adopt=None, runtime=runtime)


def test_own_directory_is_found_again(tmp_path, runtime):
    claim(tmp_path, runtime).close()
    claim(tmp_path, runtime).close()
    assert owner_of(tmp_path) == "default/a"


def test_directory_of_another_job_is_refused(tmp_path, runtime):
    claim(tmp_path, runtime).close()
    with pytest.raises(errors.ConfigurationError) as caught:
        claim(tmp_path, runtime, owner="default/b")
    assert str(caught.value) == (
        f"spec.checkpointDir: {tmp_path} belongs to default/a, and this job is default/b; use another directory, "
        "or set spec.trainer.checkpoint.adopt: default/a to take it over"
    )
    assert owner_of(tmp_path) == "default/a"


def test_directory_may_be_adopted_by_name(tmp_path, runtime):
    claim(tmp_path, runtime).close()
    claim(tmp_path, runtime, owner="default/b", adopt="default/a").close()
    assert owner_of(tmp_path) == "default/b"


def test_adopting_a_third_job_is_refused(tmp_path, runtime):
    claim(tmp_path, runtime).close()
    with pytest.raises(errors.ConfigurationError, match="belongs to default/a"):
        claim(tmp_path, runtime, owner="default/b", adopt="default/c")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "a"}'])
def test_damaged_owner_is_refused(text, tmp_path, runtime):
    (tmp_path / "owner.json").write_text(text)
    with pytest.raises(errors.ConfigurationError, match="does not say whose directory it is"):
        claim(tmp_path, runtime)


def test_second_live_run_is_refused_by_pid(tmp_path, runtime):
    held = claim(tmp_path, runtime)
    with pytest.raises(errors.ConfigurationError, match=f"another run is writing to .*: pid {os.getpid()} on host"):
        claim(tmp_path, runtime)
    held.close()
    claim(tmp_path, runtime).close()


def test_lock_ends_with_its_process(tmp_path, runtime):
    script = (
        "import os, sys; from tpujob_trainer.checkpoint import lock; "
        "held = lock.Lock(sys.argv[1]); print('held', flush=True); os.kill(os.getpid(), 9)"
    )
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, env=environment, timeout=300
    )
    assert (done.stdout, done.returncode) == ("held\n", -9)
    claim(tmp_path, runtime).close()


@pytest.mark.parametrize("under", ["file", "file/below"])
def test_file_in_the_way_is_a_configuration_error(under, tmp_path, runtime):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.ConfigurationError, match=r"spec.checkpointDir: .*file.* is not a directory"):
        claim(tmp_path / under, runtime)


def test_place_that_cannot_be_written_is_not_found(runtime):
    with pytest.raises(errors.NotFoundError, match=r"spec.checkpointDir: /proc/nowhere cannot be read and written"):
        claim("/proc/nowhere", runtime)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (PermissionError(13, "Permission denied"), errors.NotFoundError, "cannot be read and written"),
        (FileNotFoundError(2, "bucket"), errors.NotFoundError, "cannot be read and written"),
        (ValueError("UNAVAILABLE: HTTP response code: 503"), errors.TrainerError, "cannot be reached at present"),
        (ConnectionRefusedError(111, "Connection refused"), errors.TrainerError, "cannot be reached at present"),
        (ShortAnswerError("3 of its 6 bytes"), errors.TrainerError, "cannot be reached at present"),
        (NotADirectoryError(20, "Not a directory"), errors.ConfigurationError, "is not a directory"),
        (OSError(errno.ENOSPC, "No space left"), errors.TrainerError, "is full (No space left"),
        (OSError(errno.EDQUOT, "Quota exceeded"), errors.TrainerError, "is full (Quota exceeded"),
    ],
    ids=["refused", "missing", "overloaded", "down", "short", "file", "full", "quota"],
)
def test_another_attempt_is_made_only_where_it_may_help(error, kind, said):
    found = unusable("gs://b/run", error)
    assert type(found) is kind
    assert re.search(rf"^spec\.checkpointDir: (the disk of )?gs://b/run {re.escape(said)}", str(found))


@pytest.mark.parametrize(("directory", "advice"), [("/mnt/run", "the user that"), ("gs://b/run", "service account")])
def test_advice_for_a_refused_directory_fits_its_storage(directory, advice):
    assert advice in str(unusable(directory, PermissionError(13, "Permission denied")))


def test_directory_that_went_away_is_not_taken_for_a_new_one(tmp_path, runtime):
    directory = tmp_path / "run"
    claim = ownership.claim(str(directory), owner="test/job", adopt=None, runtime=runtime)
    checkpoints = Checkpoints(str(directory), Settings(retention=Retention(last=3)), runtime, claim=claim)
    assert checkpoints.restore({}) is None, "there is nothing yet"
    shutil.rmtree(directory)
    directory.mkdir()
    with pytest.raises(errors.NotFoundError, match=rf"owner\.json of this run is gone from {directory}"):
        checkpoints.restore({})
    claim.close()


def test_folder_in_the_place_of_the_lock_is_named(tmp_path, runtime):
    (tmp_path / ".lock").mkdir()
    with pytest.raises(errors.ConfigurationError, match=r"spec.checkpointDir: .*/.lock is a folder, where .* move it"):
        claim(tmp_path, runtime)


def test_directory_that_was_deleted_is_claimed_again_with_all_its_files(tmp_path, runtime, caplog):
    held = claim(tmp_path / "run", runtime)
    held.keep("_data.parquet", (lambda: (tmp_path / "run" / "_data.parquet").write_text("units")))
    (tmp_path / "run" / "_data.parquet").write_text("units")
    held.confirm()
    assert "are gone" not in caplog.text
    shutil.rmtree(tmp_path / "run")
    held.confirm()
    held.verify()
    assert f"Files of this run are gone from {tmp_path / 'run'}: they are written again" in caplog.text
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [".lock", "_data.parquet", "owner.json"]
    with pytest.raises(errors.ConfigurationError, match=f"another run is writing to .*: pid {os.getpid()} on host"):
        claim(tmp_path / "run", runtime)
    held.close()
    claim(tmp_path / "run", runtime).close()


@pytest.mark.parametrize("name", [".lock", "owner.json", "_data.parquet"])
def test_single_file_that_was_deleted_is_written_again(tmp_path, runtime, name):
    held = claim(tmp_path, runtime)
    held.keep("_data.parquet", lambda: (tmp_path / "_data.parquet").write_text("units"))
    held.confirm()
    (tmp_path / name).unlink()
    held.confirm()
    assert (tmp_path / name).exists()
    held.close()


def test_what_could_not_be_written_again_is_tried_at_the_next_look(tmp_path, runtime, monkeypatch):
    """Of a bucket, where `owner.json` alone is looked for."""
    tries = iter([OSError("503"), None])

    def write():
        if (error := next(tries)) is not None:
            raise error
        (tmp_path / "_data.parquet").write_text("units")

    held = claim(tmp_path, runtime)
    held.keep("_data.parquet", write)
    monkeypatch.setattr(ownership, "is_local", lambda directory: False)
    (tmp_path / "owner.json").unlink()
    for expected in (False, True):
        held.confirm()
        assert ((tmp_path / "_data.parquet").exists(), (tmp_path / "owner.json").exists()) == (expected, True)
    held.close()


def test_run_whose_directory_was_deleted_and_claimed_by_another_ends(tmp_path, runtime):
    held = claim(tmp_path / "run", runtime)
    shutil.rmtree(tmp_path / "run")
    script = (
        "import sys; from tpujob_trainer.checkpoint import lock; held = lock.Lock(sys.argv[1]); "
        "print('held', flush=True); sys.stdin.read()"
    )
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        for look in (held.confirm, held.verify):
            with pytest.raises(errors.ConfigurationError, match=f"another run is writing to .*: pid {other.pid} on"):
                look()
        other.stdin.close()


def test_directory_that_was_replaced_by_another_jobs_ends_the_run(tmp_path, runtime):
    held = claim(tmp_path, runtime)
    (tmp_path / "owner.json").write_text('{"owner": "default/b"}')
    with pytest.raises(errors.ConfigurationError, match="belongs to default/b, and this job is default/a"):
        held.confirm()
    with pytest.raises(errors.ConfigurationError, match="belongs to default/b"):
        held.verify()
