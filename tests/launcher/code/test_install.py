"""The code of a job is unpacked whole and as it was submitted, or refused by name."""

import gzip
import tarfile
from pathlib import Path

import pytest

from tests.launcher.code.archives import Entry, archive, special
from tpujob_contract import ExitCode
from tpujob_contract import job_code as limits
from tpujob_launcher.code import archive as unpacking
from tpujob_launcher.code import download
from tpujob_launcher.code.archive import CodeRefused
from tpujob_launcher.code.install import install, installed, main

PROGRAM = ("train.py", b"print('hello')\n")


def test_files_arrive_read_only(tmp_path: Path) -> None:
    digest = archive(
        tmp_path / "a.tar.gz",
        PROGRAM,
        ("lib/model.py", b"SIZE = 1"),
        special("lib/same.py", tarfile.SYMTYPE, "model.py"),
    )
    folder = tmp_path / "code"
    assert install(str(tmp_path / "a.tar.gz"), digest, folder) == 2
    assert (folder / "lib/same.py").read_text() == "SIZE = 1"
    assert [(folder / name).stat().st_mode & 0o777 for name in ("train.py", "lib/model.py")] == [0o444, 0o444]
    assert installed(folder) == digest


def test_done_twice_is_done_once(tmp_path: Path) -> None:
    digest = archive(tmp_path / "a.tar.gz", PROGRAM)
    install(str(tmp_path / "a.tar.gz"), digest, tmp_path / "code")
    (tmp_path / "a.tar.gz").unlink()
    assert install(str(tmp_path / "a.tar.gz"), digest, tmp_path / "code") == 0


def test_what_lay_there_is_gone(tmp_path: Path) -> None:
    first, second = archive(tmp_path / "1", PROGRAM), archive(tmp_path / "2", ("other.py", b""))
    install(str(tmp_path / "1"), first, tmp_path / "code")
    install(str(tmp_path / "2"), second, tmp_path / "code")
    assert sorted(path.name for path in (tmp_path / "code").iterdir()) == [limits.STAMP, "other.py"]


REFUSED: dict[str, tuple[list[Entry], str]] = {
    "path that climbs": ([("../evil.py", b"")], "'../evil.py' leads out of the folder"),
    "name too long": ([("a/" + "é" * 128, b"")], "has a name of more than 255 bytes"),
    "path that climbs inside": ([("a/../../evil.py", b"")], "leads out of the folder"),
    "absolute path": ([("/etc/evil", b"")], "'/etc/evil' leads out of the folder"),
    "link out": ([special("a", tarfile.SYMTYPE, "../secret")], "'a' is a link to '../secret', which is out"),
    "link out, deep": ([special("a/b/c", tarfile.SYMTYPE, "../../../x")], "is out of the folder"),
    "absolute link": ([special("a", tarfile.SYMTYPE, "/etc/passwd")], "is a link to '/etc/passwd'"),
    "link that climbs and comes back": ([special("a", tarfile.SYMTYPE, "../code/x")], "is out of the folder"),
    "link that climbs beyond another link": (
        [("d/x.py", b""), special("d/e", tarfile.SYMTYPE, "."), special("y", tarfile.SYMTYPE, "d/e/../..")],
        "'y' is a link to 'd/e/../..', which is out of the folder",
    ),
    "file below a link": ([special("a", tarfile.SYMTYPE, "b"), ("a/x.py", b"")], "lies below 'a', which is no folder"),
    "file below a file": ([("a", b""), ("a/x.py", b"")], "lies below 'a', which is no folder"),
    "hard link": ([PROGRAM, special("b", tarfile.LNKTYPE, "train.py")], "'b' is neither a file"),
    "device": ([special("null", tarfile.CHRTYPE)], "'null' is neither a file"),
    "pipe": ([special("pipe", tarfile.FIFOTYPE)], "'pipe' is neither a file"),
    "file twice": ([PROGRAM, PROGRAM], "'train.py' is there twice"),
    "file in the place of a folder": ([("a/x.py", b""), ("a", b"")], "'a' is there twice"),
    "folder in the place of a file": ([("a", b""), special("a", tarfile.DIRTYPE)], "'a' is there twice"),
    "folder in the place of a link": (
        [special("a", tarfile.SYMTYPE, "b"), special("a", tarfile.DIRTYPE)],
        "'a' is there twice",
    ),
    "link in the place of a folder": ([("a/x.py", b""), special("a", tarfile.SYMTYPE, "b")], "'a' is there twice"),
    "file of our own name": ([(limits.STAMP, b"")], "is the name of a file that is written here"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_entries_are_refused_by_name(tmp_path: Path, name: str) -> None:
    entries, words = REFUSED[name]
    digest = archive(tmp_path / "a.tar.gz", *entries)
    folder = tmp_path / "outer" / "code"
    with pytest.raises(CodeRefused) as refusal:
        install(str(tmp_path / "a.tar.gz"), digest, folder)
    assert words in str(refusal.value)
    assert refusal.value.exit_code == ExitCode.CONFIGURATION
    assert installed(folder) is None
    assert [path.name for path in (tmp_path / "outer").iterdir()] == ["code"]


def test_one_changed_byte_is_refused(tmp_path: Path) -> None:
    digest = archive(tmp_path / "a.tar.gz", PROGRAM)
    content = bytearray((tmp_path / "a.tar.gz").read_bytes())
    content[-1] ^= 1
    (tmp_path / "a.tar.gz").write_bytes(content)
    with pytest.raises(CodeRefused, match=rf"a\.tar\.gz has digest .*, and {digest} is expected"):
        install(str(tmp_path / "a.tar.gz"), digest, tmp_path / "code")
    assert not list((tmp_path / "code").iterdir())


def test_missing_archive_is_not_retried(tmp_path: Path) -> None:
    with pytest.raises(CodeRefused, match="is not there") as refusal:
        install(str(tmp_path / "a.tar.gz"), "0" * 64, tmp_path / "code")
    assert refusal.value.exit_code == ExitCode.NOT_FOUND


# Named, since gzip writes the time: as names the bytes would differ between processes that share these tests.
@pytest.mark.parametrize(
    "content",
    [b"", b"text", gzip.compress(b"text"), gzip.compress(b"\1" * 2048)[:-12]],
    ids=["empty", "text", "text in gzip", "cut"],
)
def test_other_files_are_no_archives(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(CodeRefused, match=r"not a \.tar\.gz file"):
        unpacking.unpack(tmp_path / "a", tmp_path)


def test_too_large_an_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = archive(tmp_path / "a.tar.gz", PROGRAM)
    monkeypatch.setattr(download, "MAX_ARCHIVE_BYTES", 10)
    with pytest.raises(CodeRefused, match=r"a\.tar\.gz has more than 0 MiB"):
        install(str(tmp_path / "a.tar.gz"), digest, tmp_path / "code")


@pytest.mark.parametrize("limit", ["MAX_UNPACKED_BYTES", "MAX_FILES"])
def test_a_small_archive_cannot_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    digest = archive(tmp_path / "a.tar.gz", ("zeros", bytes(50_000_000)), ("one", b""), ("two", b""))
    assert (tmp_path / "a.tar.gz").stat().st_size < 100_000
    monkeypatch.setattr(unpacking, limit, 2)
    monkeypatch.setattr(unpacking, "_HEADERS_BYTES", 1)
    with pytest.raises(CodeRefused, match="more than"):
        install(str(tmp_path / "a.tar.gz"), digest, tmp_path / "code")


def test_command_leaves_with_the_code_of_the_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digest = archive(tmp_path / "a.tar.gz", PROGRAM)
    assert main([str(tmp_path / "a.tar.gz"), digest, str(tmp_path / "code")]) == 0
    assert main([str(tmp_path / "a.tar.gz"), "1" * 64, str(tmp_path / "code")]) == ExitCode.CONFIGURATION
    assert main([str(tmp_path / "b.tar.gz"), digest, str(tmp_path / "other")]) == ExitCode.NOT_FOUND
    assert "b.tar.gz is not there" in capsys.readouterr().err
