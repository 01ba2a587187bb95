from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tpujob.commands import from_folder
from tpujob.commands.from_folder import folder_to_parquet
from tpujob.output.errors import CommandError
from tpujob_contract import ExitCode


def write(root: Path, files: dict[str, bytes | str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def rows(target: Path) -> list[tuple[str, str]]:
    tables = [pq.read_table(f) for f in sorted(target.glob("*.parquet"))]
    return [(r["path"], r["text"]) for t in tables for r in t.to_pylist()]


def test_every_text_becomes_a_row_in_order_of_path(tmp_path):
    source = write(tmp_path / "in", {"b.py": "two", "a/x.py": "one", "c.py": "drei ü"})
    made = folder_to_parquet(source, tmp_path / "out")
    assert rows(tmp_path / "out") == [("a/x.py", "one"), ("b.py", "two"), ("c.py", "drei ü")]
    assert (made.rows, made.text_bytes, made.files, made.skipped) == (3, 13, 1, {})


def test_what_is_no_text_is_counted_by_reason(tmp_path):
    source = write(
        tmp_path / "in",
        {
            "a": "text",
            "b": b"\xff",
            "f.txt": "%PDF-1.4\n1 0 obj",
            "c": "",
            "d": " \n",
            "e": b"a\0b",
            ".hidden": "x",
            ".git/f": "x",
        },
    )
    made = folder_to_parquet(source, tmp_path / "out")
    assert rows(tmp_path / "out") == [("a", "text")]
    assert made.skipped == {"not UTF-8": 1, "empty": 2, "binary": 1, "PDF": 1}
    assert made.first_skipped == {"not UTF-8": ["b"], "empty": ["c", "d"], "binary": ["e"], "PDF": ["f.txt"]}


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (("*",), (), ["a.py", "sub/b.py", "sub/c.txt"]),
        (("*.py",), (), ["a.py", "sub/b.py"]),
        (("*.py",), ("sub/*",), ["a.py"]),
        (("b.py", "*.txt"), (), ["sub/b.py", "sub/c.txt"]),
    ],
)
def test_patterns_match_paths_or_names(tmp_path, include, exclude, expected):
    source = write(tmp_path / "in", {"a.py": "1", "sub/b.py": "2", "sub/c.txt": "3"})
    folder_to_parquet(source, tmp_path / "out", include=include, exclude=exclude)
    assert [path for path, _ in rows(tmp_path / "out")] == expected


def test_large_folders_are_cut_into_files_and_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(from_folder, "ROW_GROUP_BYTES", 100)
    monkeypatch.setattr(from_folder, "FILE_BYTES", 300)
    source = write(tmp_path / "in", {f"{i:02}.txt": "x" * 50 for i in range(20)})
    made = folder_to_parquet(source, tmp_path / "out")
    files = sorted((tmp_path / "out").glob("*.parquet"))
    assert [pq.ParquetFile(f).num_row_groups for f in files] == [3, 3, 3, 1]
    assert made.files == 4
    assert len(rows(tmp_path / "out")) == 20


def test_symbolic_links_are_not_followed(tmp_path):
    source = write(tmp_path / "in", {"a": "text"})
    (source / "loop").symlink_to(source)
    (source / "b").symlink_to(source / "a")
    assert folder_to_parquet(source, tmp_path / "out").rows == 1


def test_nothing_is_left_when_there_is_no_text(tmp_path):
    source = write(tmp_path / "in", {"a": b"\xff"})
    with pytest.raises(CommandError, match=r"FOLDER: no text in .* \(1 not UTF-8\)") as raised:
        folder_to_parquet(source, tmp_path / "out")
    assert raised.value.exit_code == ExitCode.NOT_FOUND
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in"]


def test_an_existing_data_set_is_never_overwritten(tmp_path):
    source = write(tmp_path / "in", {"a": "text"})
    write(tmp_path / "out", {"mine": "precious"})
    with pytest.raises(CommandError, match="is there already"):
        folder_to_parquet(source, tmp_path / "out")
    assert (tmp_path / "out" / "mine").read_text() == "precious"


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(CommandError, match=r"FOLDER: .*nowhere.* is not a folder"):
        folder_to_parquet(tmp_path / "nowhere", tmp_path / "out")
