"""Reads TensorBoard's event files: records of a length, its checksum, an Event, its checksum."""

import struct
from pathlib import Path

from tensorboardX.proto.event_pb2 import Event


def events(folder: Path) -> list[Event]:
    """All events of a folder, file by file in order of their names."""
    files = sorted(folder.glob("events.out.tfevents.*"))
    return [event for file in files for event in parse(file.read_bytes())]


def parse(data: bytes) -> list[Event]:
    """All events of a file."""
    found = []
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        found.append(Event.FromString(data[at + 12 : at + 12 + length]))
        at += 12 + length + 4
    return found


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    """Step and value of a curve, as they were written."""
    return [
        (event.step, value.simple_value)
        for event in events(folder)
        for value in event.summary.value
        if value.tag == name
    ]
