"""Collectives in a compiled program, called exchanges here: kinds, axes, bytes.

An asynchronous exchange that the compiler has divided into pieces is one exchange, identified by its channel. All other
exchanges are counted by line: those of `shard_map` share one channel. For exchanges between slices, a program sends to
its host, whose runtime makes the exchange (megascale): these always overlap with arithmetic.
"""

import math
import re
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from tpujob_trainer.train.compile.hlo import Program, Run, array_bytes

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")

_OPERATION = re.compile(rf"= (\(?[^=]*?) ({'|'.join(KINDS)})(-start)?\(")
_TO_HOST = re.compile(r"= \((\w+\[[\d,]*\]).* send\(.*_xla_megascale_transfer_type=\"(\w+)\"")
_SCATTER = "all-reduce-scatter"
"""Prefix of the name of a fusion of a sum and the part that a device keeps: the compiler's reduce-scatter."""
_CHANNEL = re.compile(r"channel_id=(\d+)")
_PIECE = '"async_collective_fusion_config"'
"""In the settings of each piece of an exchange that the compiler overlaps with arithmetic."""
_AXES = re.compile(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}")
_COUNTED = re.compile(r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_LISTED = re.compile(r"(?:replica_groups|source_target_pairs)=\{(\{.*?\})\}")


@dataclass(frozen=True)
class Exchange:
    """All exchanges of one kind over the same axes, in one run of the program."""

    kind: str
    axes: str
    """Names of mesh axes of more than one device; empty: the program does not name them."""
    is_asynchronous: bool
    count: int
    bytes: int
    """Of all results on one device."""
    sent_bytes: int
    """Bytes that one device sends if each exchange uses a ring: an all-reduce its result twice, a reduce-scatter the
    part that it does not keep."""
    is_in_loop: bool = False
    is_between_slices: bool = False


def exchanges(program: str, devices_per_slice: int | None = None) -> list[Exchange]:
    """All exchanges in the text of a program, those with the most sent bytes first.

    Args:
        program: The text.
        devices_per_slice: Identifies exchanges between slices; None: there is one slice.
    """
    found: dict[tuple[str, str, bool, bool, bool], list[int]] = defaultdict(lambda: [0, 0, 0])
    seen: set[str] = set()
    for run in Program(program).runs():
        if sent := _TO_HOST.search(run.line):
            kind, size = sent.group(2).lower().replace("_", "-"), sum(array_bytes(sent.group(1)))
            for place, number in enumerate((run.times, run.times * size, run.times * size)):
                found[kind, "", True, run.is_in_loop, True][place] += number
            continue
        each = transfer(run, devices_per_slice)
        if each is None or (each.is_piece and each.channel in seen):
            continue
        if each.is_piece:
            seen.add(each.channel)
        is_async = each.is_started or each.is_piece
        entry = found[each.kind, _axes(run.line), is_async, run.is_in_loop, each.is_between_slices]
        entry[0] += run.times
        entry[1] += run.times * each.bytes
        entry[2] += run.times * each.sent_bytes
    made = [
        Exchange(kind, axes, is_async, count, size, sent, is_in_loop, is_between)
        for (kind, axes, is_async, is_in_loop, is_between), (count, size, sent) in found.items()
    ]
    return sorted(made, key=lambda each: -each.sent_bytes)


@dataclass(frozen=True)
class Transfer:
    """An exchange that a line of the program makes or starts."""

    kind: str
    channel: str
    """Shared by the pieces of one exchange."""
    is_started: bool
    """Whether a later line waits for it."""
    is_piece: bool
    """Whether other lines with the same channel belong to the same exchange."""
    bytes: int
    sent_bytes: int
    is_between_slices: bool


def transfer(run: Run, devices_per_slice: int | None = None) -> Transfer | None:
    """The exchange of a line; None: it has none. The second argument is that of `exchanges`."""
    line = run.line
    match = _OPERATION.search(line)
    if not match:
        return None
    kind, is_started = match.group(2), bool(match.group(3))
    sizes = array_bytes(match.group(1))
    # A start returns its argument, its result and semaphores.
    size = max(sizes, default=0) if is_started else sum(sizes)
    groups = _groups(line)
    channel = _CHANNEL.search(line)
    members = len(groups[0]) if groups else 2
    if run.computation.startswith(_SCATTER):
        kind, size = "reduce-scatter", size // members
    return Transfer(
        kind=kind,
        channel=channel.group(1) if channel else "",
        is_started=is_started,
        is_piece=channel is not None and _PIECE in line,
        bytes=size,
        sent_bytes=round(size * _sent(kind, members)),
        is_between_slices=any(len({each // (devices_per_slice or 2**30) for each in group}) > 1 for group in groups),
    )


def _axes(line: str) -> str:
    if not (match := _AXES.search(line)):
        return ""
    sizes = dict(re.findall(r"'(\w+)'=(\d+)", match.group(1)))
    return ",".join(axis for axis in re.findall(r"'(\w+)'", match.group(2)) if sizes.get(axis) != "1")


def _groups(line: str) -> list[list[int]]:
    """Groups of devices of an exchange, by their positions in the mesh; empty: the program does not name them."""
    if match := _AXES.search(line):
        sizes = {axis: int(size) for axis, size in re.findall(r"'(\w+)'=(\d+)", match.group(1))}
        names = list(sizes)
        inner = [names.index(axis) for axis in re.findall(r"'(\w+)'", match.group(2)) if axis in sizes]
        order = [place for place in range(len(names)) if place not in inner] + inner
        members = math.prod(sizes[names[place]] for place in inner)
        ids = np.arange(math.prod(sizes.values())).reshape(list(sizes.values())).transpose(order)
        return ids.reshape(-1, members).tolist()
    if match := _COUNTED.search(line):
        count, size, dims, turned = match.groups()
        shape = [int(dim) for dim in dims.split(",")]
        ids = np.arange(math.prod(shape)).reshape(shape)
        ids = ids.transpose([int(place) for place in turned.split(",")]) if turned else ids
        return ids.reshape(int(count), int(size)).tolist()
    if match := _LISTED.search(line):
        return [[int(each) for each in group.split(",")] for group in re.findall(r"\{([\d,]+)\}", match.group(1))]
    return []


def _sent(kind: str, members: int) -> float:
    """Bytes that each device sends, for each byte of the result."""
    if kind == "collective-permute":
        return 1
    if kind == "reduce-scatter":
        return members - 1
    return (2 if kind == "all-reduce" else 1) * (members - 1) / members
