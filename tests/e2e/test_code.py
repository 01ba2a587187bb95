"""Code of the job's own in real pods: an edited line runs without an image build, a changed byte does not.

From an archive in the bucket, and from a commit of a repository on a volume.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.code import repository, stored
from tests.e2e.host_folders import claimed
from tests.e2e.jobs import Jobs
from tests.launcher.code.git_server import commit, git

pytestmark = [pytest.mark.e2e, pytest.mark.core, pytest.mark.timeout(1200)]

PROGRAM = """
import json, os, model, idna.package_data
told = {"size": model.SIZE, "patched": idna.package_data.PATCHED, "writable": os.access(".", os.W_OK)}
print(json.dumps(told), flush=True)
"""
FILES = {
    "train.py": PROGRAM,
    "model.py": "SIZE = 1\n",
    "patches/idna/package_data.py": "__version__ = '0'\nPATCHED = True\n",
}
SHARE = {"name": "share", "mountPath": "/share", "persistentVolumeClaim": "share", "readOnly": True}
NOWHERE = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return repository(tmp_path, FILES)


@pytest.fixture
def mirror(jobs: Jobs, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The address of a bare repository on a volume of the jobs, and the commit before its last."""
    if not jobs.surroundings.is_own:
        pytest.skip("lies in a folder of the node of `make cluster`")
    written = tmp_path / "written"
    first = commit(written, FILES)
    commit(written, {"model.py": "SIZE = 2\n"})
    shared = tmp_path / "shared"
    git(tmp_path, "clone", "--quiet", "--mirror", str(written), str(shared / "llama.git"))
    with claimed(jobs, {"share": shared}):
        yield "file:///share/llama.git", first


def _run(jobs: Jobs, name: str, code: dict[str, Any], **spec: Any) -> None:
    jobs.apply(name, image=jobs.surroundings.python_image, command=["python3", "train.py"], code=code, **spec)


def test_edited_line_runs_without_an_image_build(
    jobs: Jobs, folder: Path, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    for size in (1, 2):
        name = f"size-{size}"
        edited = time.monotonic()
        (folder / "model.py").write_text(f"SIZE = {size}\n")
        code = stored(jobs, folder, monkeypatch)
        _run(jobs, name, code)
        status = jobs.wait_phase(name, "Succeeded")
        record_property(f"seconds_from_edit_to_end_{size}", round(time.monotonic() - edited, 1))
        print(f"from edit to the end of the job: {time.monotonic() - edited:.1f} s")  # noqa: T201
        assert status["codeSha256"] == code["sha256"]
        pods = jobs.pods(name)
        assert [jobs.told(pod) for pod in pods] == [{"size": size, "patched": True, "writable": False}] * 2
        assert "patch idna/package_data.py in the place of" in jobs.logs(pods[0])


def test_one_changed_byte_is_refused(jobs: Jobs, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = stored(jobs, folder, monkeypatch)
    name = code["archive"].partition(f"gs://{jobs.storage.name}/")[2]
    content = bytearray(jobs.storage.read(name))
    content[-1] ^= 1
    jobs.storage.write(name, bytes(content))
    _run(jobs, "changed", code)
    status = jobs.wait_phase("changed", "Failed")
    assert "init container code: tpujob code: spec.code.sha256: " in status["failure"]["message"]
    assert status["failure"]["exitCode"] == 78
    assert not status.get("restarts.total")


def test_code_that_is_not_there_is_refused(jobs: Jobs, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = stored(jobs, folder, monkeypatch)
    _run(jobs, "missing", {**code, "archive": code["archive"].replace(code["sha256"], "none")})
    status = jobs.wait_phase("missing", "Failed")
    assert "is not there" in status["failure"]["message"]
    assert status["failure"]["exitCode"] == 77


def test_commit_of_a_repository_runs(jobs: Jobs, mirror: tuple[str, str]) -> None:
    repository, first = mirror
    _run(jobs, "commit", {"repository": repository, "commit": first}, volumes=[SHARE])
    status = jobs.wait_phase("commit", "Succeeded")
    assert status["codeCommit"] == first
    pods = jobs.pods("commit")
    assert [jobs.told(pod) for pod in pods] == [{"size": 1, "patched": True, "writable": False}] * 2
    assert "patch idna/package_data.py in the place of" in jobs.logs(pods[0])


def test_commit_that_is_not_there_is_refused(jobs: Jobs, mirror: tuple[str, str]) -> None:
    _run(jobs, "nowhere", {"repository": mirror[0], "commit": NOWHERE}, volumes=[SHARE])
    status = jobs.wait_phase("nowhere", "Failed")
    said = f"init container code: tpujob code: spec.code.commit: {mirror[0]} has no commit {NOWHERE}, "
    assert said in status["failure"]["message"]
    assert status["failure"]["exitCode"] == 77
    assert not status.get("restarts.total")


def test_server_out_of_reach_is_a_crash(jobs: Jobs) -> None:
    """Which may pass, so that the job has as many of them as its spec allows."""
    code = {"repository": "https://127.0.0.1:1/llama.git", "commit": NOWHERE}
    _run(jobs, "unreachable", code, restarts={"crashes": 0})
    status = jobs.wait_phase("unreachable", "Failed")
    assert "llama.git: Failed to connect to 127.0.0.1 port 1 " in status["failure"]["message"]
    assert (status["failure"]["exitCode"], status["restarts.charged"]) == (1, 1)
