"""Profiles: what is asked for, what the loop traces, and what is written."""

from __future__ import annotations

import gzip
import http.client
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from tools.localcluster.waiting import wait_for
from tpujob_contract import profiling
from tpujob_launcher.reports import profiling as taking
from tpujob_trainer.telemetry import server
from tpujob_trainer.telemetry.profiler import BusyError, Profiler


@pytest.fixture
def profiler(tmp_path: Path) -> Iterator[Profiler]:
    made = Profiler(str(tmp_path), process_id=3)
    yield made
    made.close()


def train(profiler: Profiler, steps: int) -> None:
    """A loop of small steps."""
    step, state = jax.jit(lambda x: jnp.sin(x @ x)), jnp.eye(8)
    for done in range(steps):
        with profiler.step(done, state):
            state = step(state)


def traced_steps(trace: Path) -> list[str]:
    """The steps that XProf finds, by the names of their annotations and `step_num`."""
    data = jax.profiler.ProfileData.from_file(str(trace))
    lines = (line for plane in data.planes for line in plane.lines)
    return [event.name for line in lines for event in line.events if event.name == "train"]


def test_steps_and_memory_are_written(profiler: Profiler, tmp_path: Path) -> None:
    train(profiler, 2)
    assert profiler.state()["state"] == "idle"
    profiler.request({"steps": 2, "run": "look"})
    train(profiler, 4)
    wait_for("the files", lambda: profiler.state()["state"] in ("done", "failed"))
    found = profiler.state()
    assert (found["message"], found["steps"], found["folder"]) == (None, [1, 2], f"{tmp_path}/profiles")
    saved = tmp_path / "profiles" / "plugins" / "profile" / "look" / "process-3.xplane.pb"
    assert len(traced_steps(saved)) == 2
    assert gzip.decompress((tmp_path / "profiles" / "memory" / "look" / "process-3.pb.gz").read_bytes())
    assert {Path(path).is_file() for path in found["files"].values()} == {True}


def test_a_run_that_ends_cuts_the_trace(profiler: Profiler, tmp_path: Path) -> None:
    profiler.request({"steps": 100, "run": "long"})
    train(profiler, 3)
    profiler.close()
    assert profiler.state()["state"] == "done"
    assert len(traced_steps(next(tmp_path.rglob("*.xplane.pb")))) == 3


def test_storage_that_fails_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    profiler = Profiler(str(tmp_path / "file"), process_id=0)
    profiler.request({"steps": 1, "run": "look"})
    train(profiler, 2)
    wait_for("an answer", lambda: profiler.state()["state"] in ("done", "failed"))
    assert profiler.state()["state"] == "failed"
    assert "not written" in (profiler.state()["message"] or "")
    profiler.close()


def test_profile_without_a_trace_fails_and_the_next_may_be_taken(
    profiler: Profiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax.profiler, "export_profile_data", lambda *args, **more: None)
    profiler.request({"steps": 1, "run": "empty"})
    train(profiler, 2)
    profiler.close()
    assert profiler.state()["state"] == "failed"
    assert "not written" in (profiler.state()["message"] or "")
    profiler.request({"steps": 1, "run": "next"})


def test_one_profile_at_a_time(profiler: Profiler) -> None:
    profiler.request({"steps": 1, "run": "first"})
    with pytest.raises(BusyError, match="profile first is being taken"):
        profiler.request({"steps": 1, "run": "second"})


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"steps": 0, "run": "a"}, "steps: 0 is not a whole number from 1 to 100"),
        ({"steps": True, "run": "a"}, "steps: True"),
        ({"steps": 101, "run": "a"}, "steps: 101"),
        ({"run": "a"}, "steps: None"),
        ({"steps": 1, "run": "../a"}, "run: '../a' is no name"),
        ({"steps": 1}, "run: None"),
        ([], "steps: None"),
    ],
    ids=str,
)
def test_wrong_requests_are_refused(profiler: Profiler, wanted: object, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace(".", r"\.")):
        profiler.request(wanted)


def status_of_post(port: int, headers: dict[str, str], source: str = "127.0.0.1", body: bytes = b"") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60, source_address=(source, 0))
    try:
        connection.request("POST", "/profile", body or b'{"steps": 1, "run": "a"}', headers)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "application/json"}, 202),
        ({"Content-Type": "text/plain"}, 403),
        ({"Content-Type": "application/json", "Host": "elsewhere.example:80"}, 403),
    ],
    ids=["a program here", "a form of a page", "a name that leads here"],
)
def test_only_programs_of_this_machine_may_ask(profiler: Profiler, headers: dict[str, str], status: int) -> None:
    running = server.serve(dict, bytes, host="127.0.0.1", port=0, profiler=profiler)
    assert running is not None
    try:
        assert status_of_post(running.port, headers) == status
    finally:
        running.close()


def test_other_machines_may_not_ask(profiler: Profiler) -> None:
    running = server.serve(dict, bytes, host="127.0.0.1", port=0, profiler=profiler)
    assert running is not None
    try:
        assert status_of_post(running.port, {"Content-Type": "application/json"}, source="127.0.0.2") == 403
    finally:
        running.close()
    assert profiler.state()["state"] == "idle"


@pytest.mark.parametrize(
    ("shown", "words"),
    [("", "with the secret of the job"), ("wrong", "with the secret of the job"), ("secret", "steps: 0")],
)
def test_only_those_with_the_secret_of_the_job_may_ask(profiler: Profiler, shown: str, words: str) -> None:
    running = server.serve(dict, bytes, host="127.0.0.1", port=0, profiler=profiler, secret="secret")
    assert running is not None
    try:
        (answer,) = taking.messages(running.port, shown, steps=0, run="a", is_fetched=False)
    finally:
        running.close()
    assert words in answer["error"]


def test_answers_say_what_is_wrong(profiler: Profiler) -> None:
    running = server.serve(dict, bytes, host="127.0.0.1", port=0, profiler=profiler)
    without = server.serve(dict, bytes, host="127.0.0.1", port=0)
    assert running is not None
    assert without is not None

    def asked(port: int, steps: int) -> list[profiling.Message]:
        return list(taking.messages(port, "", steps=steps, run="a", is_fetched=False))

    try:
        assert "steps: 0" in asked(running.port, 0)[0]["error"]
        for body in (b"[" * 4000, b"\xff"):
            assert status_of_post(running.port, {"Content-Type": "application/json"}, body=body) == 400
        profiler.request({"steps": 1, "run": "first"})
        assert "profile first is being taken" in asked(running.port, 1)[0]["error"]
        assert "takes no profiles" in asked(without.port, 1)[0]["error"]
    finally:
        running.close()
        without.close()
    assert "no training process answers" in asked(running.port, 1)[0]["error"]
