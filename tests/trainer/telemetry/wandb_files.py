"""Reads the file of an offline W&B run: blocks of 32 KiB, in them records in fragments, each with a checksum."""

import json
import struct
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record

FILE_HEADER, BLOCK, FRAGMENT_HEADER = 7, 32 * 1024, 7
FULL, LAST = 1, 4
"""Types of a fragment that ends a record; the others are 2 and 3."""


def records(data: bytes) -> list[Record]:
    """All records, in the order in which they were written."""
    found, record, at = [], b"", FILE_HEADER
    while at < len(data):
        if BLOCK - at % BLOCK < FRAGMENT_HEADER:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        at += FRAGMENT_HEADER
        record += data[at : at + length]
        at += length
        if kind in (FULL, LAST):
            found.append(Record.FromString(record))
            record = b""
    return found


def config(data: bytes) -> dict[str, Any]:
    """The configuration of the run."""
    (run,) = (record.run for record in records(data) if record.WhichOneof("record_type") == "run")
    return {each.key: json.loads(each.value_json) for each in run.config.update}


def steps(data: bytes) -> list[int]:
    """Of which steps there are numbers or texts."""
    found = (record.history for record in records(data) if record.WhichOneof("record_type") == "history")
    items = ([*history.item] for history in found)
    return [json.loads(item.value_json) for each in items for item in each if "step" in (item.key, *item.nested_key)]
