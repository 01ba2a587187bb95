"""Files that are small and become large, or lie about themselves, and what a reader says of each within its memory.

    python -m tests.trainer.data.formats.hostile_files FOLDER MEBIBYTES

prints one JSON object: the error of each file in a process that has so much address space, and the memory it took.
"""

import gzip
import io
import json
import resource
import struct
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

MEBIBYTE = 1 << 20
BOMB_BYTES = 4 << 30
HOLE_BYTES = 6 << 30
PIECE_BYTES = 16 << 20


def write_all(folder: Path) -> None:
    """All files of `HOSTILE`, a few kilobytes to a few megabytes each."""
    for name, write in HOSTILE.items():
        write(folder / name)


def _gzip(path: Path, start: bytes = b"") -> None:
    """In members of 16 MiB, so that it is written in a moment."""
    member = gzip.compress(b" " * PIECE_BYTES)
    path.write_bytes(gzip.compress(start) + member * (BOMB_BYTES // PIECE_BYTES))


def _zstd(path: Path, start: bytes = b"") -> None:
    import pyarrow as pa

    frame = pa.compress(b" " * PIECE_BYTES, "zstd", asbytes=True)
    path.write_bytes(pa.compress(start, "zstd", asbytes=True) + frame * (BOMB_BYTES // PIECE_BYTES))


def _header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


def _sparse(path: Path) -> None:
    header = bytearray(_header("a.txt", 512, tarfile.GNUTYPE_SPARSE))
    header[386 : 386 + 12], header[398 : 398 + 12] = b"00000000000\0", b"00000001000\0"
    header[483 : 483 + 12] = struct.pack(">BxxxQ", 0x80, 20 << 30)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    path.write_bytes(bytes(header) + b"x" * 512 + bytes(1024))


def _sparse_pax(path: Path) -> None:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("a.txt")
        member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(20 << 30)}
        tar.addfile(member, io.BytesIO())


def _long_header(path: Path) -> None:
    size = 13 * PIECE_BYTES
    start = gzip.compress(_header("././@PaxHeader", size, tarfile.XHDTYPE))
    path.write_bytes(start + gzip.compress(b"a" * PIECE_BYTES) * 13 + gzip.compress(bytes(1024)))


def _page(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = pa.array([" " * (64 * MEBIBYTE)] * 5, pa.large_string())
    pq.write_table(pa.table({"text": text}), path, compression="zstd", use_dictionary=False)


def write_long_record(path: Path) -> None:
    """Behind what is there: a length that fits into the file, which is all hole."""
    from tpujob_trainer.data.formats.tfrecord import masked_crc

    length = struct.pack("<Q", HOLE_BYTES)
    with path.open("ab") as file:
        file.write(length + struct.pack("<I", masked_crc(length)))
        file.truncate(file.tell() + HOLE_BYTES + 4)


def _long_line(path: Path) -> None:
    """Of zeros that take no space on the disk."""
    with path.open("wb") as file:
        file.write(b'{"text": "a"}\n')
        file.truncate(HOLE_BYTES)


HOSTILE: dict[str, Callable[[Path], None]] = {
    "a.jsonl.gz": lambda path: _gzip(path, b'{"text": "a"}\n'),
    "a.txt.gz": lambda path: _gzip(path, b"a\n"),
    "a.jsonl.zst": lambda path: _zstd(path, b'{"text": "a"}\n'),
    "a.txt.zst": lambda path: _zstd(path, b"a\n"),
    "a.tar.gz": lambda path: _gzip(path, _header("a.txt", BOMB_BYTES)),
    "b.tgz": lambda path: _gzip(path, _header("a.jpg", BOMB_BYTES)),
    "a.tar.zst": lambda path: _zstd(path, _header("a.txt", BOMB_BYTES)),
    "sparse.tar": _sparse,
    "sparse-pax.tar": _sparse_pax,
    "header.tar.gz": _long_header,
    "a.parquet": _page,
    "long.tfrecord": write_long_record,
    "long.jsonl": _long_line,
    "long.txt": _long_line,
}


LIMITS = {"long.tfrecord": 1 << 30, "long.jsonl": 1 << 30, "long.txt": 1 << 30}
"""Other values of `maxUnpackedBytes` than the default."""


def errors_of(folder: Path) -> dict[str, list[str]]:
    """Class and message of the error that reading each file ends with."""
    from tpujob_trainer.data import DataConfig, make_manifest
    from tpujob_trainer.data.manifest.reader import UnitReader
    from tpujob_trainer.values.errors import TrainerError

    found = {}
    for path in sorted(folder.iterdir()):
        try:
            # A row may have a quarter of it.
            manifest = make_manifest(DataConfig(path=str(path), max_unpacked_bytes=LIMITS.get(path.name, 4 << 30)))
            reader = UnitReader(manifest)
            rows = sum(len(reader.read(unit).column) for unit in range(manifest.num_units))
            found[path.name] = ["", f"{rows} rows"]
        except TrainerError as error:
            found[path.name] = [str(error.exit_code), str(error)]
        except Exception as error:  # noqa: BLE001 - told to the test
            found[path.name] = [type(error).__name__, str(error)]
    return found


if __name__ == "__main__":
    limit = int(sys.argv[2]) * MEBIBYTE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    errors = errors_of(Path(sys.argv[1]))
    # Not ru_maxrss: a process inherits that of the one which started it.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = int(status.partition("VmHWM:")[2].split()[0]) >> 10
    sys.stdout.write(json.dumps({"errors": errors, "peak_mebibytes": peak}))
