"""`--code DIR`: which files go, what is refused, where the archive ends up, and that a program imports it."""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.harness.wheels import wheel
from tests.operator.manifests import container_manifest, manifest
from tpujob.job.code.job_code import attach
from tpujob.job.code.packing import pack
from tpujob.output.errors import CommandError
from tpujob_contract import ExitCode
from tpujob_launcher.code import archive
from tpujob_launcher.code.install import install
from tpujob_resource.rules.load import load_job

PROGRAM = "import json, os, model\nprint(json.dumps([model.SIZE, os.getcwd(), os.environ['TPUJOB_CODE_SHA256']]))\n"


def git(folder: Path, *arguments: str) -> None:
    settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    person = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", "-C", folder, *person, *arguments], env=settings, check=True, capture_output=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with a commit, an ignored file and a folder below."""
    folder = tmp_path / "mine"
    (folder / "lib").mkdir(parents=True)
    for name, text in (
        ("train.py", PROGRAM),
        ("model.py", "SIZE = 1\n"),
        ("lib/a.py", ""),
        (".gitignore", "*.bin\n.env\n"),
        ("weights.bin", "large"),
    ):
        (folder / name).write_text(text)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def test_what_git_tracks_goes_and_what_it_ignores_stays(folder: Path) -> None:
    packed = pack(folder)
    assert packed.files.names == (".gitignore", "lib/a.py", "model.py", "train.py")
    assert packed.files.commit_with_changes == packed.files.commit
    assert packed.lines()[0].startswith(f"code {packed.sha256[:12]}: 4 files of")


def test_changes_go_and_are_marked(folder: Path) -> None:
    (folder / "model.py").write_text("SIZE = 2\n")
    (folder / "new.py").write_text("")
    (folder / "lib/a.py").unlink()
    packed = pack(folder)
    assert packed.files.names == (".gitignore", "model.py", "new.py", "train.py")
    assert [line for line in packed.lines() if line.startswith("  *")] == ["  * model.py", "  * new.py"]
    assert (packed.files.commit_with_changes or "").endswith("+changes")


def test_commit_is_packed_as_it_was(folder: Path) -> None:
    before = pack(folder)
    (folder / "model.py").write_text("SIZE = 2\n")
    git(folder, "commit", "-qam", "second")
    (folder / "model.py").write_text("SIZE = 3\n")
    (folder / "new.py").write_text("")
    first = pack(folder, "HEAD~1")
    assert (first.data, first.files.commit_with_changes) == (before.data, before.files.commit)
    assert pack(folder / "lib", "HEAD~1").files.names == ("a.py",)
    assert pack(folder, "HEAD").data not in (before.data, pack(folder).data)
    # Nothing of it is in the folder or in its index.
    assert (folder / "model.py").read_text() == "SIZE = 3\n"
    assert pack(folder).files.changed == {"model.py", "new.py"}


def test_no_commit_is_named(folder: Path) -> None:
    with pytest.raises(CommandError, match="--commit: 'v9' is no commit of the repository of"):
        pack(folder, "v9")


def test_digest_is_of_the_files_alone(folder: Path, tmp_path: Path) -> None:
    first = pack(folder)
    for name in first.files.names:
        os.utime(folder / name, (1, 1))
    assert pack(folder).data == first.data
    (folder / "model.py").write_text("SIZE = 2\n")
    assert pack(folder).sha256 != first.sha256


def test_a_folder_of_a_repository_is_packed_alone(folder: Path) -> None:
    assert pack(folder / "lib").files.names == ("a.py",)


def test_a_repository_without_a_commit_is_packed(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("")
    packed = pack(tmp_path)
    assert (packed.files.names, packed.files.commit_with_changes) == (("a.py",), None)


def _link(folder: Path, name: str, target: str) -> None:
    (folder / name).symlink_to(target)


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (lambda folder: folder / "none", "is no folder"),
    "no repository": (lambda folder: folder.parent, "is in no git repository"),
    "link out": (lambda folder: _link(folder, "data", "../../data"), "data is a link to ../../data, out of"),
    "absolute link": (lambda folder: _link(folder, "data", "/etc/passwd"), "data is a link to /etc/passwd"),
    "key that git does not track": (lambda folder: (folder / "id_rsa").write_text("k"), "id_rsa looks like a key"),
    "repository within": (lambda folder: _nested(folder), "is a repository of its own"),
}


def _nested(folder: Path) -> None:
    (folder / "sub").mkdir()
    git(folder / "sub", "init", "-q")
    (folder / "sub/a.py").write_text("")
    git(folder / "sub", "add", ".")
    git(folder / "sub", "commit", "-qm", "first")


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_packed_is_named(folder: Path, name: str) -> None:
    spoil, words = REFUSED[name]
    other = spoil(folder)
    with pytest.raises(CommandError) as refusal:
        pack(other if isinstance(other, Path) else folder)
    assert words in str(refusal.value)


def test_too_much_is_refused_with_the_largest_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpujob.job.code.files.MAX_UNPACKED_BYTES", 10)
    with pytest.raises(CommandError, match=r"at most 0; the largest: train\.py"):
        pack(folder)


def test_stored_once_and_named_in_the_resource(folder: Path, tmp_path: Path) -> None:
    job = container_manifest(accelerator="cpu:1x1", checkpointDir=str(tmp_path / "checkpoints"))
    manifest, packed, is_new = attach(job, folder, None)
    assert is_new
    other = container_manifest(accelerator="cpu:1x1", checkpointDir=str(tmp_path / "rehearsed"))
    assert attach(other, folder, None, is_rehearsal=True)[2] is False
    assert not (tmp_path / "rehearsed").exists()
    assert not attach(job, folder, None)[2]
    code = load_job(manifest).spec.code
    assert code is not None
    assert code.sha256 is not None
    assert code.archive == str(tmp_path / "checkpoints/code" / f"{packed.sha256}.tar.gz")
    assert install(code.archive, code.sha256, tmp_path / "pod") == 4
    assert archive.unpack(Path(code.archive), _made(tmp_path / "again")) == 4


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_job_with_code_gets_no_other(folder: Path) -> None:
    job = container_manifest(code={"archive": "gs://bucket/a", "sha256": "0" * 64})
    with pytest.raises(CommandError, match="leave out one of the two"):
        attach(job, folder, "gs://bucket")


def run_here(folder: Path, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """`tpujob run` of the job in a folder."""
    command = [sys.executable, "-m", "tpujob", "run", "job.yaml", *options]
    given = {**os.environ, **environ}
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=600)


@pytest.mark.processes
def test_an_edited_line_runs_here(folder: Path, tmp_path: Path) -> None:
    job = container_manifest("mine", accelerator="v5e-8", image="python:3", command=["python3", "train.py"])
    YAML().dump(job, tmp_path / "job.yaml")
    printed = []
    for size in (1, 7):
        (folder / "model.py").write_text(f"SIZE = {size}\n")
        done = run_here(tmp_path, "--code", str(folder))
        assert done.returncode == 0, done.stdout + done.stderr
        printed.append(json.loads(next(line for line in done.stdout.splitlines() if line.startswith("["))))
    assert [size for size, _, _ in printed] == [1, 7]
    for _, place, digest in printed:
        assert place == str(tmp_path / ".tpujob/default/mine/code" / digest[:12])


@pytest.mark.processes
def test_packages_of_the_code_are_installed_here(folder: Path, tmp_path: Path) -> None:
    (folder / "requirements.txt").write_text(wheel(folder / "wheels", 5))
    (folder / "train.py").write_text("import gadget\nprint('gadget', gadget.NUMBER)\n")
    packages = {"requirements": "requirements.txt", "wheels": "wheels"}
    command = ["python3", "train.py"]
    job = container_manifest("mine", accelerator="cpu:1x1", image="python:3", command=command, packages=packages)
    YAML().dump(job, tmp_path / "job.yaml")
    (tmp_path / "tmp").mkdir()
    done = run_here(tmp_path, "--code", str(folder), TMPDIR=str(tmp_path / "tmp"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gadget 5" in done.stdout
    (log,) = tmp_path.glob(".tpujob/default/mine/logs/*/process-0.log")
    assert "packages: 1 in " in log.read_text()


@pytest.mark.processes
def test_patch_of_a_package_of_the_commands_own_python_runs_here(folder: Path, tmp_path: Path) -> None:
    """As of MaxText, which is not installed where `tpujob` is."""
    venv.create(tmp_path / "theirs", with_pip=False)
    (site,) = (tmp_path / "theirs" / "lib").glob("python*/site-packages")
    (site / "only_theirs").mkdir()
    (site / "only_theirs" / "__init__.py").write_text("SIZE = 1\n")
    patch = folder / "patches" / "only_theirs" / "__init__.py"
    patch.parent.mkdir(parents=True)
    patch.write_text("SIZE = 9\n")
    command = [str(tmp_path / "theirs" / "bin" / "python"), "-c", "import only_theirs; print('size', only_theirs.SIZE)"]
    job = container_manifest("mine", accelerator="cpu:1x1", image="python:3", command=command)
    YAML().dump(job, tmp_path / "job.yaml")
    done = run_here(tmp_path, "--code", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "size 9" in done.stdout


def test_name_that_the_code_does_not_have_is_refused_before_the_start(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("tick tock\n" * 50)
    block = {"model": {"preset": "tiny"}, "data": {"path": "text.txt"}, "steps": 1, "loss": "model:los"}
    YAML().dump(manifest(accelerator="cpu:1x1", trainer=block), tmp_path / "job.yaml")
    done = run_here(tmp_path, "--code", str(folder))
    assert done.returncode == ExitCode.CONFIGURATION
    assert "spec.trainer.loss: model has no 'los'; it has SIZE" in done.stderr
    assert not list(tmp_path.glob(".tpujob/**/*.log"))


@pytest.mark.processes
def test_commit_of_a_repository_runs_here(folder: Path, tmp_path: Path) -> None:
    commit = (folder / ".git/refs/heads" / (folder / ".git/HEAD").read_text().strip().rpartition("/")[2]).read_text()
    commit = commit.strip()
    (folder / "model.py").write_text("SIZE = 8\n")
    code = {"repository": f"file://{folder}", "commit": commit}
    job = container_manifest(
        "mine", accelerator="cpu:1x1", image="python:3", command=["python3", "train.py"], code=code
    )
    YAML().dump(job, tmp_path / "job.yaml")
    done = run_here(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    size, place, digest = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[")))
    assert (size, digest) == (1, commit)
    assert place == str(tmp_path / ".tpujob/default/mine/code" / commit[:12])
