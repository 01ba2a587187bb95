"""File name extensions of data files, by format."""

from __future__ import annotations

from typing import Mapping, Tuple

_PACKED = ("", ".gz", ".zst")

FILE_ENDINGS: Mapping[str, Tuple[str, ...]] = {
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow",),
    "arrayrecord": (".array_record", ".arrayrecord"),
    "tfrecord": (".tfrecord", ".tfrecords"),
    "webdataset": (".tar", ".tar.gz", ".tgz", ".tar.zst"),
    "jsonl": tuple(ending + packed for ending in (".jsonl", ".ndjson", ".json") for packed in _PACKED),
    "csv": tuple(ending + packed for ending in (".csv", ".tsv") for packed in _PACKED),
    "text": tuple(".txt" + packed for packed in _PACKED),
}
"""By the values of `spec.trainer.data.format`."""
