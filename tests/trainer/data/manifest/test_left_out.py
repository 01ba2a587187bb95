"""Which files of a folder are read, and that the others are told of."""

import io
import json
import logging
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpujob_trainer.data import DataConfig, make_manifest
from tpujob_trainer.data.manifest.left_out import describes
from tpujob_trainer.data.manifest.listing import list_source
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError

FILES = {
    "a.txt": b"a text",
    "b.md": b"# another text",
    "c": "ein Text über nichts".encode(),
    "d.pdf": b"%PDF-1.4\nstream",
    "e.txt.bak": b"\0\1\2",
    "f.png": b"\x89PNG",
    "README": b"about these texts",
    ".hidden.txt": b"hidden",
}


@pytest.fixture
def folder(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def read(folder, caplog, **more):
    with caplog.at_level(logging.WARNING, "tpujob_trainer.data"):
        manifest = make_manifest(DataConfig(path=str(folder), **more))
    return list(manifest.paths), [each.getMessage() for each in caplog.records]


def test_a_folder_of_texts_takes_what_is_text_and_names_the_rest(folder, caplog):
    paths, (warning,) = read(folder, caplog)
    assert paths == ["README", "a.txt", "b.md", "c"]
    assert warning == f"{folder}: 3 of 7 files are left out: d.pdf (PDF), e.txt.bak (binary), f.png (an image)"


def test_a_folder_without_a_txt_is_read_too(folder, caplog):
    (folder / "a.txt").unlink()
    assert read(folder, caplog)[0] == ["README", "b.md", "c"]


def test_a_format_that_is_chosen_names_what_it_leaves_out(folder, caplog):
    (folder / "rows.jsonl").write_text('{"text": "a row"}\n')
    paths, (warning,) = read(folder, caplog, format="jsonl")
    assert paths == ["rows.jsonl"]
    assert "6 of 8 files are left out: a.txt (not jsonl), b.md (not jsonl), c (not jsonl) and 3 more" in warning


def test_texts_that_are_chosen_name_the_data_that_they_leave_out(folder, caplog):
    (folder / "a.csv").write_text("text\na row\n")
    for name in ("d.pdf", "e.txt.bak", "f.png"):
        (folder / name).unlink()
    paths, (warning,) = read(folder, caplog, format="text")
    assert paths == ["README", "a.txt", "b.md", "c"]
    assert warning == f"{folder}: 1 of 5 files are left out: a.csv (not text)"


def test_a_pattern_means_what_it_matches(folder, caplog):
    paths, warnings = read(folder / "*.txt", caplog)
    assert (paths, warnings) == (["a.txt"], [])


TEXT = "a text that is long enough to be more than what may be left out of a folder of data" * 4


def parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"text": [TEXT]}), out)
    return out.getvalue()


def tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo("0.txt")
        member.size = len(TEXT)
        archive.addfile(member, io.BytesIO(TEXT.encode()))
    return out.getvalue()


ROWS = json.dumps({"text": TEXT}).encode() + b"\n"
KINDS = {
    ".parquet": parquet(),
    ".PQ": parquet(),
    ".jsonl": ROWS,
    ".json": b"[" + ROWS + b"]",
    ".jsonl.1": ROWS,
    ".csv": f"text\n{TEXT}\n".encode(),
    ".tar": tar(),
    ".txt": TEXT.encode(),
    "": TEXT.encode(),
    ".md": TEXT.encode(),
    ".pdf": b"%PDF-1.4" + bytes(400),
    ".png": b"\x89PNG" + bytes(400),
    ".zip": b"PK" + bytes(400),
    ".bak": bytes(400),
    ".html": f"<!DOCTYPE html>{TEXT}".encode(),
}
"""By the ending of a name, the content of a file that is whole."""
FOLDERS = st.lists(
    st.tuples(
        st.sampled_from(["", "a/", ".hidden/", "_b/", "test/"]),
        st.sampled_from(["x", "README", ".x", "_SUCCESS", "a b", "é", "x.y"]),
        st.sampled_from(sorted(KINDS)),
        st.booleans(),
    ),
    max_size=8,
)
"""Files: the folder, the first part of the name, its ending, and whether it is a link to a file elsewhere."""


@given(files=FOLDERS)
def test_each_file_of_a_folder_is_read_left_out_by_name_hidden_or_refused(files, tmp_path_factory):
    folder, elsewhere = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("elsewhere")
    for number, (below, name, ending, is_link) in enumerate(files):
        path = folder / below / f"{name}{ending}"
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        written = elsewhere / str(number) if is_link else path
        written.write_bytes(KINDS[ending])
        if is_link:
            path.symlink_to(written)
    there = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    shown = {path for path in there if not any(part.startswith((".", "_")) for part in Path(path).parts)}
    config = DataConfig(path=str(folder))
    try:
        listing = list_source(config, "spec.trainer.data")
    except NotFoundError:
        assert not any(
            path.lower().endswith((".parquet", ".pq", ".jsonl", ".json", ".csv", ".tar", ".txt")) for path in shown
        )
        return
    read = {file.path for file in listing.files}
    left = {each.file.path for each in listing.left}
    assert not read & left
    assert {path for path in shown - read - left if not describes(path)} == set()
    assert read | left <= shown
    lost = sum(there[each.file.path] for each in listing.left if each.is_data)
    if lost > 0.01 * (lost + sum(there[path] for path in read)):
        with pytest.raises(ConfigurationError, match="files in two formats"):
            make_manifest(config)
    else:
        assert set(make_manifest(config).paths) == read


def test_data_in_two_formats_is_refused_with_what_to_write(tmp_path):
    for name in ("a.parquet", "b.jsonl", "c.jsonl"):
        (tmp_path / name).write_bytes(KINDS[Path(name).suffix])
    with pytest.raises(ConfigurationError) as refused:
        make_manifest(DataConfig(path=str(tmp_path)))
    assert str(refused.value) == (
        f"spec.trainer.data.path: {str(tmp_path)!r} has files in two formats, 1 parquet and 2 other, "
        "'b.jsonl' for one; write format: parquet to read those alone, or give a pattern for those that are meant"
    )
    assert make_manifest(DataConfig(path=str(tmp_path), format="jsonl")).num_units == 2
    assert make_manifest(DataConfig(path=f"{tmp_path}/*.parquet")).num_units == 1
