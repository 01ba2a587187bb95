"""What comes from commands on hosts: whole lines however they are cut on the way, and how each command ended."""

import json

import pytest

from tpujob.cluster import executing
from tpujob.cluster.executing import STDERR, STDOUT, ending


class Played:
    """A connection on which pieces come, one for each look."""

    def __init__(self, *pieces: tuple[int, bytes]) -> None:
        self._pieces = list(pieces)
        self._here: dict[int, bytes] = {}

    def is_open(self) -> bool:
        return bool(self._pieces)

    def update(self, timeout: float) -> None:
        channel, piece = self._pieces.pop(0)
        self._here[channel] = self._here.get(channel, b"") + piece

    def read_channel(self, channel: int, timeout: float = 0) -> bytes:
        return self._here.pop(channel, b"")


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([(STDOUT, b"one\ntwo\n")], [(False, "one"), (False, "two")]),
        ([(STDOUT, b"on"), (STDERR, b"no\n"), (STDOUT, b"e\n")], [(True, "no"), (False, "one")]),
        ([(STDOUT, "Gr\u00fc".encode()[:3]), (STDOUT, "\u00fc".encode()[1:] + b"n\n")], [(False, "Gr\u00fcn")]),
        ([(STDOUT, b"no end")], [(False, "no end")]),
        ([(STDOUT, b"")], []),
    ],
    ids=["whole", "cut", "cut in a character", "without an end", "nothing"],
)
def test_lines_are_whole(pieces: list[tuple[int, bytes]], lines: list[tuple[bool, str]]) -> None:
    assert list(executing._lines(Played(*pieces))) == lines


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        ({"status": "Success"}, 0, ""),
        ({"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [{"message": "3"}]}}, 3, ""),
        ({"status": "Failure", "reason": "InternalError", "message": "no such file"}, 1, "no such file"),
        (None, 1, "the connection ended before the command did"),
    ],
    ids=["success", "exit code", "not started", "cut off"],
)
def test_ending_is_what_the_kubelet_says(status: dict | None, code: int, words: str) -> None:
    assert ending(b"" if status is None else json.dumps(status).encode()) == (code, words)
