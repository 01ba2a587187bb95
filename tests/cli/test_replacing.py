"""What `submit --replace` says of two specs."""

from typing import Any

import pytest

from tpujob.cluster.client import ApiError
from tpujob.cluster.replacing import Replacement, changes, replace_job


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ({"slices": 1}, {"slices": 1}, []),
        (
            {"trainer": {"steps": 100, "seed": 1}},
            {"trainer": {"steps": 200, "seed": 1}},
            ["spec.trainer.steps: 100 → 200"],
        ),
        ({}, {"restarts": {"crashes": 9}}, ["spec.restarts.crashes: 9, which was not there"]),
        ({"restarts": {"crashes": 9}}, {}, ["spec.restarts.crashes: gone, it was 9"]),
        ({"capacity": {}}, {}, ["spec.capacity: gone, it was {}"]),
        ({"args": ["a"]}, {"args": ["a", "é"]}, ['spec.args: ["a"] → ["a", "é"]']),
        ({"suspend": True}, {"suspend": False}, ["spec.suspend: true → false"]),
        ({"image": "a" * 80}, {"image": "b"}, [f'spec.image: "{"a" * 58}… → "b"']),
        ({"trainer": {"a": 1}}, {"trainer": "x"}, ['spec.trainer: {"a": 1} → "x"']),
    ],
    ids=["nothing", "one", "added", "removed", "empty", "list", "boolean", "long", "another type"],
)
def test_each_field_that_differs_is_one_line(before: Any, after: Any, lines: list[str]) -> None:
    assert list(changes(before, after)) == lines


@pytest.mark.parametrize(
    ("before", "is_rehearsal", "words"),
    [
        (None, False, "created, as there was none"),
        (None, True, "would be created"),
        ({"steps": 2}, False, "nothing differs, and nothing was done"),
        ({"steps": 1}, True, "would be changed"),
    ],
)
def test_the_first_line_says_what_was_done(before: Any, is_rehearsal: bool, words: str) -> None:
    job = {"metadata": {"namespace": "team", "name": "llama"}}
    found = Replacement(job, before and {"spec": before}, {"steps": 2})
    assert next(found.lines(is_rehearsal=is_rehearsal)) == f"team/llama: {words}"


class Server:
    """An API server that has one job, which its operator writes to all the time."""

    namespace = "team"

    def __init__(self, conflicts: int, *, retry: int | None = None) -> None:
        spec = {"steps": 1, **({"retry": retry} if retry else {})}
        metadata = {"namespace": "team", "name": "llama", "generation": 1}
        self.job: Any = {"metadata": metadata, "spec": spec, "status": {"phase": "Failed"}}
        self.conflicts = conflicts

    def job_path(self, name: str = "") -> str:
        return f"/jobs/{name}"

    def get(self, path: str) -> Any:
        return self.job

    def create(self, path: str, value: Any) -> Any:
        if value["metadata"]["name"] == "llam0":
            raise ApiError("create", 409, "is there")
        return value

    def replace(self, path: str, value: Any) -> Any:
        if self.conflicts:
            self.conflicts -= 1
            raise ApiError("put", 409, "the object has been modified")
        if "dryRun" not in path:
            self.job = value
        return value


def replaced(server: Any, **spec: Any) -> list[str]:
    manifest = {"metadata": {"name": "llama"}, "spec": spec}
    made = replace_job(server, manifest, dry_run=False, say=lambda line: pytest.fail(f"it was stopped: {line}"))
    return list(made.lines(is_rehearsal=False))


@pytest.mark.parametrize("conflicts", [0, 1, 4])
def test_a_write_that_comes_between_stops_nothing(conflicts: int) -> None:
    server = Server(conflicts)
    assert replaced(server, steps=2) == ["team/llama: changed", "  spec.steps: 1 → 2"]
    assert server.job["spec"] == {"steps": 2}


def test_writes_without_end_are_told_of() -> None:
    with pytest.raises(ApiError, match="has been modified"):
        replaced(Server(1000), steps=2)


def test_the_number_of_retries_is_that_of_the_job() -> None:
    server = Server(0, retry=3)
    assert replaced(server, steps=2) == ["team/llama: changed", "  spec.steps: 1 → 2"]
    assert server.job["spec"] == {"retry": 3, "steps": 2}


def test_a_failed_job_with_the_same_spec_is_retried_by_its_own_verb() -> None:
    assert replaced(Server(0), steps=1) == [
        "team/llama: nothing differs, and nothing was done; `tpujob retry llama` starts it anew"
    ]
