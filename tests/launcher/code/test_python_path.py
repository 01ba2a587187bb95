"""What a program under the launcher imports: the job's code, patched packages, and only what was submitted."""

import hashlib
import sys
from pathlib import Path

import pytest

from tests.launcher.code.archives import archive
from tests.launcher.conftest import Launch
from tpujob_contract import ExitCode
from tpujob_launcher.code.archive import CodeRefused
from tpujob_launcher.code.install import install
from tpujob_launcher.code.python_path import apply_patches

PYTHON = (sys.executable, "-c")


def installed_code(tmp_path: Path, **files: str) -> dict[str, str]:
    """The environment of a job whose code has these files; __ stands for a slash."""
    entries = [(name.replace("__", "/") + ".py", text.encode()) for name, text in files.items()]
    digest = archive(tmp_path / "code.tar.gz", *entries)
    install(str(tmp_path / "code.tar.gz"), digest, tmp_path / "code")
    return {"TPUJOB_CODE": str(tmp_path / "code"), "TPUJOB_CODE_SHA256": digest}


def test_program_imports_the_code(launch: Launch, tmp_path: Path) -> None:
    environ = installed_code(tmp_path, mine="SIZE = 3", src__package__part="SIZE = 4")
    launched = launch(*PYTHON, "import mine, package.part; print(mine.SIZE, package.part.SIZE)", environ=environ)
    assert launched.wait() == 0
    assert launched.stdout == "3 4\n"
    assert f"code {environ['TPUJOB_CODE_SHA256'][:12]} from" in launched.stderr


def test_patch_takes_the_place_of_a_file(launch: Launch, tmp_path: Path) -> None:
    environ = installed_code(tmp_path, patches__packaging__tags="PATCHED = True", patches__packaging__extra="X = 1")
    program = "import packaging.extra, packaging.tags as t, packaging.version as v; print(t.PATCHED, v.Version('1.0'))"
    launched = launch(*PYTHON, program, environ=environ)
    assert launched.wait() == 0
    assert launched.stdout == "True 1.0\n"
    assert "patch packaging/tags.py in the place of " in launched.stderr
    assert "patch packaging/extra.py added to " in launched.stderr


def test_patch_of_nothing_is_refused(launch: Launch, tmp_path: Path) -> None:
    environ = installed_code(tmp_path, patches__no_such_package__a="")
    launched = launch("true", environ=environ)
    assert launched.wait() == ExitCode.CONFIGURATION
    assert "patches/no_such_package: no installed package has that name" in launched.stderr


def test_other_code_than_the_jobs_is_refused(launch: Launch, tmp_path: Path) -> None:
    environ = installed_code(tmp_path, mine="") | {"TPUJOB_CODE_SHA256": "1" * 64}
    launched = launch("true", environ=environ)
    assert launched.wait() == ExitCode.CONFIGURATION
    assert f"and the job's is {'1' * 64}" in launched.stderr


def test_module_is_patched_as_a_file(tmp_path: Path) -> None:
    for folder in ("site", "patches", "overlay"):
        (tmp_path / folder).mkdir()
    (tmp_path / "site/single.py").write_text("A = 1")
    (tmp_path / "patches/single.py").write_text("A = 2")
    lines = apply_patches(tmp_path / "patches", tmp_path / "overlay", [str(tmp_path / "site")])
    digest = hashlib.sha256((tmp_path / "site/single.py").read_bytes()).hexdigest()
    assert lines == [f"single.py in the place of {tmp_path / 'site/single.py'}, SHA-256 {digest}"]
    assert (tmp_path / "overlay/single.py").read_text() == "A = 2"


def test_data_files_stay_beside_their_module(tmp_path: Path) -> None:
    for folder in ("site/package/configs", "patches/package/configs", "overlay"):
        (tmp_path / folder).mkdir(parents=True)
    for name, text in (("__init__.py", ""), ("configs/base.yml", "a: 1"), ("configs/other.yml", "b: 1")):
        (tmp_path / "site/package" / name).write_text(text)
    (tmp_path / "patches/package/configs/base.yml").write_text("a: 2")
    apply_patches(tmp_path / "patches", tmp_path / "overlay", [str(tmp_path / "site")])
    overlay = tmp_path / "overlay/package"
    assert [(overlay / name).read_text() for name in ("configs/base.yml", "configs/other.yml")] == ["a: 2", "b: 1"]


@pytest.mark.parametrize("name", ["single.py", "package/part.py"], ids=["module", "file of a package"])
@pytest.mark.parametrize("form", ["{}\n", "{}  /opt/site/part.py\n", "  {}"], ids=["alone", "sha256sum", "with blanks"])
def test_a_patch_that_knows_its_original_takes_its_place(tmp_path: Path, name: str, form: str) -> None:
    site, patches, overlay = patched(tmp_path, name)
    digest = hashlib.sha256((site / name).read_bytes()).hexdigest()
    (patches / f"{name}.sha256").write_text(form.format(digest.upper() if "  {" in form else digest))
    (line,) = apply_patches(patches, overlay, [str(site)])
    assert line == f"{name} in the place of {site / name}, SHA-256 {digest}"
    assert (overlay / name).read_text() == "A = 2"
    assert not list(overlay.rglob("*.sha256"))


@pytest.mark.parametrize(
    ("digest", "words"),
    [
        ("0" * 64, "was made for a file of SHA-256 " + "0" * 64 + ", and .*site.* has "),
        ("", r"was made for a file of SHA-256 \(nothing\), and"),
    ],
    ids=["another original", "an empty digest"],
)
@pytest.mark.parametrize("name", ["single.py", "package/part.py"], ids=["module", "file of a package"])
def test_a_patch_for_another_original_is_refused(tmp_path: Path, name: str, digest: str, words: str) -> None:
    site, patches, overlay = patched(tmp_path, name)
    (patches / f"{name}.sha256").write_text(digest)
    with pytest.raises(CodeRefused, match=f"patches/{name} {words}") as refused:
        apply_patches(patches, overlay, [str(site)])
    assert refused.value.exit_code == 78


def test_a_patch_whose_original_is_gone_is_refused(tmp_path: Path) -> None:
    site, patches, overlay = patched(tmp_path, "package/part.py")
    (patches / "package/part.py.sha256").write_text("a" * 64)
    (site / "package/part.py").unlink()
    with pytest.raises(CodeRefused, match="and the package has no such file; compare the patch with it"):
        apply_patches(patches, overlay, [str(site)])


def patched(folder: Path, name: str) -> tuple[Path, Path, Path]:
    """Where a package and a module are installed, a patch of one file of them, and an empty overlay."""
    site, patches, overlay = (folder / each for each in ("site", "patches", "overlay"))
    for each in (site / "package", (patches / name).parent, overlay):
        each.mkdir(parents=True)
    for file in ("package/__init__.py", "package/part.py", "single.py"):
        (site / file).write_text("A = 1")
    (patches / name).write_text("A = 2")
    return site, patches, overlay
