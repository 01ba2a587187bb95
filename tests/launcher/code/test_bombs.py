"""Archives of a few kilobytes that would become gigabytes: refused by name, within little memory and disk."""

import gzip
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

MEMORY_BYTES, FILE_BYTES = 400 << 20, 8 << 20
UNPACK = f"""
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_BYTES}, {MEMORY_BYTES}))
resource.setrlimit(resource.RLIMIT_FSIZE, ({FILE_BYTES}, {FILE_BYTES}))
from tpujob_launcher.code.archive import CodeRefused, unpack
try:
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))
except CodeRefused as refused:
    print(refused, refused.exit_code)
"""


def header(name: str, kind: bytes, size: int, more: bytes = b"") -> bytes:
    """One block of a tar, with `more` from byte 386 on, where sparse entries say what they become."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    block[386 : 386 + len(more)] = more
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def gnu_sparse(file: Path) -> None:
    real_size = b"\x80" + (20 << 30).to_bytes(11, "big")
    more = b"".join([real_size, b"%011o\0" % 0]) + b"\0" * 73 + real_size
    write(file, header("a.py", tarfile.GNUTYPE_SPARSE, 0, more))


def pax_sparse(file: Path) -> None:
    with tarfile.open(file, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("a.py")
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(20 << 30)}
        content = b"1\n0\n0\n".ljust(512, b"\0")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))


def long_name(file: Path) -> None:
    with gzip.open(file, "wb", compresslevel=1) as packed:
        packed.write(header("@LongLink", tarfile.GNUTYPE_LONGNAME, 400 << 20))
        for _ in range(400):
            packed.write(b"x" * (1 << 20))


def pax_header(file: Path) -> None:
    with gzip.open(file, "wb", compresslevel=1) as packed:
        packed.write(header("pax", tarfile.XHDTYPE, 400 << 20))
        for _ in range(400):
            packed.write(b"1" * (1 << 20))


def write(file: Path, content: bytes) -> None:
    file.write_bytes(gzip.compress(content + b"\0" * 1024))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (gnu_sparse, "'a.py' is a sparse file"),
        (pax_sparse, "'a.py' is a sparse file"),
        (long_name, "a header of 419,430,400 bytes, more than 65,536"),
        (pax_header, "a header of 419,430,400 bytes, more than 65,536"),
    ],
    ids=["sparse", "sparse in PAX", "name of 400 MiB", "PAX header of 400 MiB"],
)
def test_an_archive_that_becomes_much_is_refused(tmp_path, make, words):
    make(tmp_path / "code.tar.gz")
    (tmp_path / "out").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", UNPACK, str(tmp_path / "code.tar.gz"), str(tmp_path / "out")],
        capture_output=True,
        text=True,
    )
    assert words in done.stdout, done.stderr
    assert done.stdout.endswith(" 78\n")
