"""Profiles as they come from several hosts: files put together, endings, and words."""

import base64
from pathlib import Path
from typing import Any

import pytest

from tpujob.cluster import executing, profiling
from tpujob.cluster.executing import Ended, Line
from tpujob.output.errors import CommandError


def part(name: str, data: bytes) -> dict[str, str]:
    return {"name": name, "data": base64.b64encode(data).decode()}


def test_files_are_put_together(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "trace").write_bytes(b"of another time")
    files = profiling.Files(tmp_path)
    for message in (part("a/trace", b"one, "), part("b", b"other"), part("a/trace", b"two")):
        files.add(message)
    assert ((tmp_path / "a" / "trace").read_bytes(), (tmp_path / "b").read_bytes()) == (b"one, two", b"other")


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out"])
def test_files_stay_in_their_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="outside of the folder"):
        profiling.Files(tmp_path / "folder").add(part(name, b""))


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ([Line(0, '{"state": "done"}', False), Ended(0, 0)], [{"state": "done"}]),
        ([Line(0, '{"error": "busy"}', False), Ended(0, 1)], [{"error": "busy"}]),
        ([Line(0, "No module named tpujob_contract.profiling", True), Ended(0, 1)],
         [{"error": "No module named tpujob_contract.profiling"}]),
        ([Line(0, "a warning of the image", False), Line(0, '{"state": "done"}', False), Ended(0, 0)],
         [{"state": "done"}]),
        ([Ended(0, 1, "403: forbidden")], [{"error": "403: forbidden"}]),
        ([Ended(0, 137)], [{"error": "exit code 137"}]),
    ],
    ids=["done", "refused", "an image without it", "other words", "no right to exec", "killed"],
)  # fmt: skip
def test_end_in_a_pod_is_told_once(said: list[Any], found: list[dict[str, str]], monkeypatch: Any) -> None:
    monkeypatch.setattr(executing, "run", lambda cluster, pods, command: iter(said))
    taken = profiling.take_in_pods(None, [{}], steps=1, run="a", is_fetched=False)  # type: ignore[arg-type]
    assert [message for _, message in taken] == found


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"state": "waiting"}, "waiting for the next step"),
        ({"state": "tracing", "steps": [3, 7]}, "tracing steps 3 to 7"),
        ({"state": "writing"}, None),
        ({"state": "done", "folder": "gs://b/profiles"}, "saved in gs://b/profiles"),
        ({"state": "done", "folder": None}, "taken; the job has no checkpointDir"),
        ({"state": "failed", "message": "not written: x"}, "not written: x"),
        ({"error": "busy"}, "busy"),
        ({"name": "a", "data": ""}, None),
    ],
    ids=str,
)
def test_words_for_people(message: dict[str, Any], words: str | None) -> None:
    assert profiling.sentence(message) == words
