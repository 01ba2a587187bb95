"""Makes a parquet data set of the text files below a folder: one row a file, columns `text` and `path`.

Rows are in order of path and files are cut by size, so the same folder always gives the same data set. Everything is
written next to the target and renamed at the end: a data set is complete or absent.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tpujob.output.errors import CommandError
from tpujob_contract import ExitCode
from tpujob_contract.file_names import SAMPLE_BYTES, why_not_text

ROW_GROUP_BYTES = 1 << 20
"""Text in a row group, in characters: small enough that a data set of a few megabytes divides among many readers."""
FILE_BYTES = 8 << 20
"""Text in a parquet file, in characters."""
SHOWN_FILES = 3
"""How many of the files that were left out for the same reason are named."""
LARGEST_TEXT_BYTES = 4 << 20
"""A longer text file is skipped: it is data, not written text."""

SCHEMA = pa.schema([("text", pa.string()), ("path", pa.string())])


@dataclass(frozen=True, kw_only=True)
class FolderSummary:
    """The result of a folder's conversion."""

    rows: int
    text_bytes: int
    files: int
    skipped: dict[str, int]
    """Files left out, by reason."""
    first_skipped: dict[str, list[str]]
    """The first of them, by reason."""


def folder_to_parquet(
    source: Path, target: Path, *, include: tuple[str, ...] = ("*",), exclude: tuple[str, ...] = ()
) -> FolderSummary:
    """Writes `target`/part-NNNNN.parquet from the text files below `source`.

    Args:
        source: Folder that is walked; hidden files and folders and symbolic links are left out.
        target: Folder to make; must not exist.
        include: Patterns; a file's path below `source` or its name must match one.
        exclude: Patterns; neither may match one.

    Raises:
        CommandError: there is no such folder, the target exists or cannot be written, or no text was found.
    """
    if not source.is_dir():
        raise CommandError(
            f"FOLDER: {str(source)!r} is not a folder; name one with text files", exit_code=ExitCode.NOT_FOUND
        )
    if target.exists():
        raise CommandError(f"OUT: {str(target)!r} is there already; remove it or name another folder")
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        left: dict[str, list[str]] = {}
        rows = text_bytes = files = 0
        for part in _parts(_texts(source, include, exclude, left)):
            with pq.ParquetWriter(partial / f"part-{files:05d}.parquet", SCHEMA, compression="zstd") as writer:
                for group in part:
                    writer.write_table(pa.table({"text": [t for _, t in group], "path": [p for p, _ in group]}, SCHEMA))
                    rows += len(group)
                    text_bytes += sum(len(t.encode()) for _, t in group)
            files += 1
        if rows == 0:
            reasons = ", ".join(f"{len(names)} {why}" for why, names in sorted(left.items())) or "no file matches"
            raise CommandError(
                f"FOLDER: no text in {str(source)!r} ({reasons}); {_kinds(source)}", exit_code=ExitCode.NOT_FOUND
            )
        partial.rename(target)
    except OSError as error:
        raise CommandError(
            f"OUT: {str(target)!r} cannot be written ({error.strerror or error}); name a folder that you may write to, "
            "with room on its disk"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return FolderSummary(
        rows=rows,
        text_bytes=text_bytes,
        files=files,
        skipped={why: len(names) for why, names in left.items()},
        first_skipped={why: names[:SHOWN_FILES] for why, names in left.items()},
    )


def _kinds(source: Path) -> str:
    """The patterns that match most files of a folder, as advice for --include."""
    files = (file for file in source.rglob("*") if file.is_file() and not file.name.startswith("."))
    found = Counter(f"'*{file.suffix}'" for file in files)
    if not found:
        return "it has no files"
    kinds = ", ".join(f"{count} of {pattern}" for pattern, count in found.most_common(3))
    return f"it has {kinds}; give one as --include"


def _texts(
    source: Path, include: tuple[str, ...], exclude: tuple[str, ...], left: dict[str, list[str]]
) -> Iterator[tuple[str, str]]:
    """(path, text) of every usable file, in order of path; adds the other files to `left`, by reason."""
    for file in sorted(source.rglob("*")):
        relative = file.relative_to(source)
        path = relative.as_posix()
        if any(p.startswith(".") for p in relative.parts) or file.is_symlink() or not file.is_file():
            continue
        if not _matches(path, include) or _matches(path, exclude):
            continue
        try:
            if file.stat().st_size > LARGEST_TEXT_BYTES:
                left.setdefault(f"larger than {LARGEST_TEXT_BYTES >> 20} MiB", []).append(path)
                continue
            content = file.read_bytes()
            why = why_not_text(path, content[:SAMPLE_BYTES])
            text = "" if why else content.decode("utf-8")
        except UnicodeDecodeError:
            why = "not UTF-8"
        except OSError:
            why = "unreadable"
        if why is None and not text.strip():
            why = "empty"
        elif why is None and "\0" in text:
            why = "binary"
        path = path.encode(errors="surrogateescape").decode(errors="backslashreplace")  # names are bytes
        if why is None:
            yield path, text
        else:
            left.setdefault(why, []).append(path)


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(path, p) or fnmatch(path.rsplit("/", 1)[-1], p) for p in patterns)


def _parts(texts: Iterator[tuple[str, str]]) -> Iterator[Iterator[list[tuple[str, str]]]]:
    """Texts as files of row groups, both cut by size. Each file must be consumed before the next one."""
    groups = _groups(texts)
    for first in groups:

        def part(first: list[tuple[str, str]] = first) -> Iterator[list[tuple[str, str]]]:
            size = sum(len(t) for _, t in first)
            yield first
            while size < FILE_BYTES:
                group = next(groups, None)
                if group is None:
                    return
                size += sum(len(t) for _, t in group)
                yield group

        yield part()


def _groups(texts: Iterator[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    group: list[tuple[str, str]] = []
    size = 0
    for path, text in texts:
        group.append((path, text))
        size += len(text)
        if size >= ROW_GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
