"""The same rows in files of every kind, written by other code than that which reads them."""

import csv
import gzip
import io
import json
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq
from array_record.python import array_record_module


def write_parquet(path: Path, texts: Sequence[str]) -> None:
    pq.write_table(pa.table({"text": list(texts)}), path, row_group_size=7)


def write_arrow(path: Path, texts: Sequence[str]) -> None:
    rows = pa.table({"id": [7] * len(texts), "text": list(texts)})
    with pa.ipc.new_stream(path, rows.schema) as stream:
        stream.write_table(rows, max_chunksize=7)


def write_arrow_file(path: Path, texts: Sequence[str]) -> None:
    rows = pa.table({"text": pa.array(texts).dictionary_encode()})
    with pa.ipc.new_file(path, rows.schema) as stream:
        stream.write_table(rows, max_chunksize=50)


def write_jsonl(path: Path, texts: Sequence[str]) -> None:
    path.write_bytes(b"".join(json_line(text) for text in texts))


def write_jsonl_gz(path: Path, texts: Sequence[str]) -> None:
    lines = [json_line(text) for text in texts]
    half = len(lines) // 2
    path.write_bytes(gzip.compress(b"".join(lines[:half])) + gzip.compress(b"".join(lines[half:])))


def write_jsonl_zst(path: Path, texts: Sequence[str]) -> None:
    with pa.CompressedOutputStream(str(path), "zstd") as stream:
        stream.write(b"".join(json_line(text) for text in texts))


def write_text(path: Path, texts: Sequence[str]) -> None:
    path.write_text("\n".join(texts), encoding="utf-8")


def write_json_array(path: Path, texts: Sequence[str]) -> None:
    path.write_text(json.dumps([{"id": 7, "text": text} for text in texts], indent=1, ensure_ascii=False))


def write_pretty_json(path: Path, texts: Sequence[str]) -> None:
    path.write_text("\n".join(json.dumps({"id": 7, "text": text}, indent=1) for text in texts))


def write_csv(path: Path, texts: Sequence[str], separator: str = ",") -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerows([["id", "text", "label"], *([7, text, "x"] for text in texts)])


def write_tsv(path: Path, texts: Sequence[str]) -> None:
    write_csv(path, texts, "\t")


def compressed(write: Callable[[Path, Sequence[str]], None]) -> Callable[[Path, Sequence[str]], None]:
    """A writer of the same in gzip, whatever the name says."""

    def write_compressed(path: Path, texts: Sequence[str]) -> None:
        write(path, texts)
        path.write_bytes(gzip.compress(path.read_bytes()))

    return write_compressed


def write_tfrecord(path: Path, texts: Sequence[str]) -> None:
    write_tfrecords(path, [example(text=text) for text in texts])


def write_array_record(path: Path, texts: Sequence[str]) -> None:
    write_array_records(path, [example(text=text) for text in texts])


def write_tar(path: Path, texts: Sequence[str]) -> None:
    with tarfile.open(path, "w") as tar:
        for number, text in enumerate(texts):
            add_member(tar, f"deep/er/{number:06d}.txt", text.encode())
            add_member(tar, f"deep/er/{number:06d}.cls", b"cbuiltins\nexec\n.")


def write_tar_zst(path: Path, texts: Sequence[str]) -> None:
    write_tar(path, texts)
    content = path.read_bytes()
    with pa.CompressedOutputStream(str(path), "zstd") as stream:
        stream.write(content)


WRITERS = {
    "a.parquet": write_parquet,
    "a.arrow": write_arrow,
    "a.jsonl": write_jsonl,
    "a.jsonl.gz": write_jsonl_gz,
    "a.json.zst": write_jsonl_zst,
    "a.txt": write_text,
    "a.tfrecord-00000-of-00001": write_tfrecord,
    "a.array_record": write_array_record,
    "a.tar": write_tar,
    "a.tar.zst": write_tar_zst,
}
LINES_BY_CONTENT = {"B.JSONL": write_jsonl, "part-00000": write_jsonl, "a.jsonl.1": write_jsonl}
READ_WHOLE = {
    "array.json": write_json_array,
    "pretty.json": write_pretty_json,
    "packed.jsonl": compressed(write_jsonl),
    "packed.tfrecord": compressed(write_tfrecord),
    "packed.json": compressed(write_json_array),
    "a.csv": write_csv,
    "A.TSV": write_tsv,
    "a.csv.gz": compressed(write_csv),
}


def json_line(text: str) -> bytes:
    return json.dumps({"id": 7, "text": text}, ensure_ascii=False).encode() + b"\n"


def add_member(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def write_tfrecords(path: Path, records: Sequence[bytes]) -> None:
    def masked(data: bytes) -> bytes:
        crc = google_crc32c.value(data)
        return ((((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")

    with path.open("wb") as file:
        for record in records:
            length = len(record).to_bytes(8, "little")
            file.write(length + masked(length) + record + masked(record))


def write_array_records(path: Path, records: Sequence[bytes], options: str = "group_size:3") -> None:
    writer = array_record_module.ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()


def example(**features: Any) -> bytes:
    """A serialised tf.train.Example."""
    entries = b"".join(
        _field(1, _field(1, name.encode()) + _field(2, _feature(value))) for name, value in features.items()
    )
    return _field(1, entries)


def _feature(value: Any) -> bytes:
    if isinstance(value, list):
        return _field(3, _field(1, b"".join(_varint(item & (1 << 64) - 1) for item in value)))
    return _field(1, _field(1, value.encode() if isinstance(value, str) else value))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])
