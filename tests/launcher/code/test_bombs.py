"""Archives and packs of a few kilobytes that would become gigabytes: refused by name, within little memory and disk."""

import gzip
import io
import struct
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

import pytest
from dulwich.errors import GitProtocolError

from tpujob_contract.code import MAX_UNPACKED_BYTES
from tpujob_launcher.code.archive import CodeRefused
from tpujob_launcher.git.pack_limits import check_pack

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


def pack(*objects: bytes) -> io.BytesIO:
    return io.BytesIO(b"PACK" + struct.pack(">II", 2, len(objects)) + b"".join(objects) + b"\0" * 20)


def stored(kind: int, content: bytes, size: int | None = None, before: bytes = b"") -> bytes:
    size = len(content) if size is None else size
    first, size = kind << 4 | size & 15, size >> 4
    numbers = []
    while size:
        numbers.append(first | 0x80)
        first, size = size & 0x7F, size >> 7
    return bytes([*numbers, first]) + before + zlib.compress(content)


def delta(result: int) -> bytes:
    """Of a base of one byte."""
    numbers = [1]
    while result >= 0x80:
        numbers.append(result & 0x7F | 0x80)
        result >>= 7
    return bytes([*numbers, result, 0])


BLOB, OFFSET_DELTA, REFERENCE_DELTA = 3, 6, 7


def test_a_pack_within_the_limits_is_accepted():
    small = delta(1000)
    check_pack(
        pack(
            stored(BLOB, b"x" * 100_000),
            stored(OFFSET_DELTA, small, before=b"\x81\x00"),
            stored(REFERENCE_DELTA, small, before=b"\1" * 20),
        ),
        "https://host/a",
    )


@pytest.mark.parametrize(
    "made",
    [
        stored(BLOB, b"x", size=MAX_UNPACKED_BYTES + 1),
        stored(OFFSET_DELTA, delta(MAX_UNPACKED_BYTES + 1), before=b"\1"),
        stored(REFERENCE_DELTA, delta(4 << 30), before=b"\1" * 20),
    ],
    ids=["object", "delta by offset", "delta by id"],
)
def test_a_pack_that_becomes_much_is_refused(made):
    with pytest.raises(CodeRefused, match="what https://host/a sends becomes more than 500 MiB"):
        check_pack(pack(stored(BLOB, b"first"), made), "https://host/a")


@pytest.mark.parametrize(
    "made",
    [stored(BLOB, b"x" * (64 << 20), size=10), stored(BLOB, b"x" * 100)[:8], b"\xff" * 30],
    ids=["longer than it says", "cut", "endless number"],
)
def test_a_pack_that_lies_is_damaged(made):
    content = io.BytesIO(b"PACK" + struct.pack(">II", 2, 1) + made)
    with pytest.raises(GitProtocolError, match=r"damaged|middle"):
        check_pack(content, "https://host/a")
