from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.data.parquet_files import write_groups
from tests.trainer.data.web_folder import web_folder
from tpujob_contract import ExitCode
from tpujob_trainer.data import DataConfig
from tpujob_trainer.data.manifest.listing import list_source
from tpujob_trainer.data.sources.files import DataFile, DataRoot, explained
from tpujob_trainer.values.errors import NotFoundError, TrainerError


def find_files(path: str) -> tuple[DataRoot, list[DataFile]]:
    listing = list_source(DataConfig(path=path), "spec.trainer.data")
    return listing.root, listing.files


@pytest.fixture
def folder(tmp_path):
    for name in ("b.parquet", "a.parquet", "deep/er/c.parquet", "_hidden.parquet", ".cache/d.parquet", "readme.md"):
        path = tmp_path / name
        if name.endswith(".md"):
            path.write_text("hello")
        else:
            write_groups(path, [["text"]])
    return tmp_path


@pytest.mark.parametrize(
    ("path", "root", "expected"),
    [
        ("", "", ["a.parquet", "b.parquet", "deep/er/c.parquet"]),
        ("b.parquet", "", ["b.parquet"]),
        ("*.parquet", "", ["a.parquet", "b.parquet"]),
        ("deep/*/c.parquet", "deep", ["er/c.parquet"]),
        ("**/[bc].parquet", "", ["b.parquet", "deep/er/c.parquet"]),
        ("_hidden.parquet", "", ["_hidden.parquet"]),
    ],
    ids=["folder", "file", "pattern", "pattern of folders", "pattern of levels", "hidden, but named"],
)
def test_path_means_these_files(folder, path, root, expected):
    found, files = find_files(str(folder / path))

    assert [file.path for file in files] == expected
    assert found.folder == str(folder / root)
    assert all(file.size == Path(found.locate(file.path)).stat().st_size for file in files)


@pytest.fixture
def linked(tmp_path):
    """One file of its own, and links: to files and a folder, as in the cache of the hub and a mounted ConfigMap."""
    write_groups(tmp_path / "out" / "blob", [["text"]])
    write_groups(tmp_path / "in" / "own.parquet", [["text"]])
    write_groups(tmp_path / "in" / "..2024" / "map.parquet", [["text"]])
    (tmp_path / "in" / "..data").symlink_to("..2024")
    (tmp_path / "in" / "map.parquet").symlink_to("..data/map.parquet")
    (tmp_path / "in" / "to-blob.parquet").symlink_to("../out/blob")
    write_groups(tmp_path / "out" / "deep" / "far.parquet", [["text"]])
    (tmp_path / "in" / "folder").symlink_to("../out/deep")
    (tmp_path / "in" / ".lock").symlink_to("nobody@nowhere")
    return tmp_path / "in"


ALL_LINKED = ["folder/far.parquet", "map.parquet", "own.parquet", "to-blob.parquet"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", ALL_LINKED),
        ("*.parquet", ALL_LINKED[1:]),
        ("**/*.parquet", ALL_LINKED),
        ("folder", ["far.parquet"]),
        ("folder/*", ["far.parquet"]),
        ("{map,own,to-blob}.parquet", ALL_LINKED[1:]),
        ("{folder,own.parquet}", ["folder/far.parquet", "own.parquet"]),
        ("..data/*", ["map.parquet"]),
    ],
)
def test_links_are_followed(linked, path, expected):
    root, files = find_files(str(linked / path))
    assert [file.path for file in files] == expected
    assert all(file.size == Path(root.locate(file.path)).stat().st_size for file in files)


@pytest.mark.parametrize(
    ("link", "target", "message"),
    [
        ("gone.parquet", "../out/gone", "'gone.parquet' is a link to '../out/gone', which is not there"),
        ("self", "self", "'self' is a link to 'self', which is not there"),
        ("up", "..", r"'up' is a link to '\.\.', which it is in itself"),
        ("folder/back", "../../in", "'folder/back' is a link to '../../in', which it is in itself"),
    ],
)
def test_links_that_lead_nowhere_are_named(linked, link, target, message):
    (linked / link).symlink_to(target)
    with pytest.raises(NotFoundError, match=rf"^spec.trainer.data.path: {message}"):
        find_files(str(linked))
    with pytest.raises(NotFoundError, match=rf"^spec.trainer.data.path: {message}"):
        find_files(str(linked / f"{{own.parquet,{link.partition('/')[0]}}}"))


@pytest.fixture
def shards(tmp_path):
    for name in ("en/s-0008", "en/s-0009", "en/s-0010", "en/_s-0011", "de/s-0008", "odd/{1..3}"):
        write_groups(tmp_path / f"{name}.parquet", [["text"]])
    return tmp_path


@pytest.mark.parametrize(
    ("path", "root", "expected"),
    [
        ("en/s-{0008..0010}.parquet", "en", ["s-0008.parquet", "s-0009.parquet", "s-0010.parquet"]),
        ("en/s-00{09..08}.parquet", "en", ["s-0008.parquet", "s-0009.parquet"]),
        ("en/s-000{8..9}.parquet", "en", ["s-0008.parquet", "s-0009.parquet"]),
        ("{en,de}/s-000{8,8}.parquet", "", ["de/s-0008.parquet", "en/s-0008.parquet"]),
        ("en/*{09,10}.parquet", "en", ["s-0009.parquet", "s-0010.parquet"]),
        ("{de,en}", "", ["de/s-0008.parquet", "en/s-0008.parquet", "en/s-0009.parquet", "en/s-0010.parquet"]),
        ("odd/{1..3}.parquet", "odd", ["{1..3}.parquet"]),
    ],
)
def test_braces_mean_all_their_names(shards, path, root, expected):
    found, files = find_files(str(shards / path))
    assert [file.path for file in files] == expected
    assert found.folder == str(shards / root).rstrip("/")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("en/s-{0007..0010}.parquet", "names 4 files, and 1 of them is missing: 's-0007.parquet'"),
        ("en/s-{0010..0012}.parquet", "names 3 files, and 2 of them are missing, 's-0011.parquet' for one"),
        ("{en,fr}/*.parquet", r"names 2 files, and 1 of them is missing: 'fr/\*.parquet'"),
        ("s-{0..999}-{0..999999}.tar", "names 1000000000 files, more than 1000000; give a pattern with"),
    ],
)
def test_braces_with_names_that_are_not_there_are_refused(shards, path, message):
    with pytest.raises(TrainerError, match=rf"spec.trainer.data.path: '.*' {message}"):
        find_files(str(shards / path))


@pytest.fixture
def server(tmp_path):
    """A web server that lists no folder."""
    with web_folder(tmp_path, refuses=lambda path: path.endswith("/")) as url:
        yield url


def test_braces_are_read_from_a_web_server_that_lists_nothing(server, tmp_path):
    for number in range(3):
        write_groups(tmp_path / f"s-{number}.parquet", [["text"]])
    _, files = find_files(f"{server}/s-{{0..2}}.parquet")
    assert [file.path for file in files] == ["s-0.parquet", "s-1.parquet", "s-2.parquet"]
    with pytest.raises(NotFoundError, match=r"names 4 files, and 1 of them is missing: 's-3.parquet'"):
        find_files(f"{server}/s-{{0..3}}.parquet")


def test_url_means_the_same_as_path(folder):
    _, by_path = find_files(str(folder))
    _, by_url = find_files(f"file://{folder}")

    assert by_path == by_url


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("x/*.parquet", "'x/*.parquet' matches no file"),
        ("missing", "'missing' matches no file"),
        ("scan.pdf", "'scan.pdf' matches 1 file, 'scan.pdf' for one, but none is text or ends with .parquet"),
        ("strange://x", "'strange://x' is on a storage that is not supported"),
    ],
    ids=["pattern", "folder", "not parquet", "protocol"],
)
def test_path_without_data_is_refused(folder, monkeypatch, path, message):
    monkeypatch.chdir(folder)
    (folder / "scan.pdf").write_bytes(b"%PDF-1.7")

    with pytest.raises(NotFoundError) as refused:
        find_files(path)

    assert str(refused.value).startswith(f"spec.trainer.data.path: {message}")
    assert refused.value.exit_code == ExitCode.NOT_FOUND


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "Permission denied"),
        OSError("Forbidden: https://storage.googleapis.com/storage/v1/b/private/o"),
        type("HttpError", (Exception,), {"code": 401})("Anonymous caller does not have storage.objects.list access"),
    ],
    ids=["local", "gcs 403", "gcs 401"],
)
def test_no_permission_ends_the_run(error):
    with pytest.raises(NotFoundError, match=r"no permission to read 'gs://private'.*grant"), explained("gs://private"):
        raise error


def test_trouble_that_may_pass_is_left_alone():
    with pytest.raises(OSError, match="reset by peer"), explained("gs://bucket"):
        raise OSError("Connection reset by peer")


@pytest.mark.parametrize(
    ("environment", "cause"),
    [
        ({"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, "set LC_ALL=C.UTF-8"),
        ({}, "is no UTF-8"),
    ],
    ids=["locale", "file"],
)
def test_name_that_cannot_be_listed_is_named_with_its_cause(tmp_path, environment, cause):
    name = "ü".encode() if environment else b"\xfc"
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name + b".txt")).write_text("text\n")
    program = (
        "import sys; from tpujob_trainer.data import DataConfig; from tpujob_trainer.data.manifest.listing import "
        "list_source; list_source(DataConfig(path=sys.argv[1]), 'spec.trainer.data')"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "LC_ALL": "C", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1
    assert cause in found.stderr.splitlines()[-1]
