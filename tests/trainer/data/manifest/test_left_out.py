"""Which files of a folder are read, and that the others are told of."""

import logging

import pytest

from tpujob_trainer.data import DataConfig, make_manifest

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


def test_other_formats_name_what_they_leave_out(folder, caplog):
    (folder / "rows.jsonl").write_text('{"text": "a row"}\n')
    paths, (warning,) = read(folder, caplog)
    assert paths == ["rows.jsonl"]
    assert "6 of 8 files are left out: a.txt (not jsonl), b.md (not jsonl), c (not jsonl) and 3 more" in warning


def test_a_pattern_means_what_it_matches(folder, caplog):
    paths, warnings = read(folder / "*.txt", caplog)
    assert (paths, warnings) == (["a.txt"], [])
