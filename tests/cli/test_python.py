"""`tpujob.run`: how a run ends, as a value or an exception. `tests/scenes/docs/test_python.py` trains with it."""

import os
import re
import signal
import threading
from pathlib import Path

import pytest

import tpujob
from tpujob.commands.api.runs import settings_of
from tpujob.job.set_fields import with_fields

FAILS = "print('here'); raise SystemExit(3)"
WAITS = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
open("started", "w").close()
signal.pause()
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_program_that_fails_raises_with_its_logs() -> None:
    Path("fails.py").write_text(FAILS)
    with pytest.raises(tpujob.RunFailed, match=r"^fails: process \d .*exit code 3.*\n.*SystemExit: 3") as failure:
        tpujob.run("fails.py", accelerator="cpu:2x1")
    run = failure.value.run
    assert (run.phase, run.exit_code, failure.value.exit_code) == ("Failed", 3, 3)
    assert [log.name for log in run.log_files] == ["process-0.log", "process-1.log"]
    # The first to fail ends the other, which may not have come so far.
    assert "here" in "".join(log.read_text() for log in run.log_files)
    with pytest.raises(tpujob.CommandError, match=r"^DIRECTORY: .*metrics\.csv"):
        _ = run.metrics
    with pytest.raises(tpujob.CommandError, match="checkpoints"):
        _ = run.checkpoints


def test_a_signal_stops_a_run_which_is_then_returned() -> None:
    Path("waits.py").write_text(WAITS)
    done = threading.Event()

    def interrupt() -> None:
        while not Path("started").exists():
            if done.wait(0.05):
                return
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    helper = threading.Thread(target=interrupt)
    helper.start()
    try:
        run = tpujob.run(Path("waits.py"))
    finally:
        done.set()
        helper.join()
    assert (run.phase, run.exit_code) == ("Suspended", 75)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_thread_cannot_run_a_job() -> None:
    found: list[BaseException] = []

    def call() -> None:
        try:
            tpujob.run("fails.py")
        except RuntimeError as error:
            found.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert "main thread" in str(found[0])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere.py",), "nowhere.py: no such file"),
        (("nowhere.yaml",), "nowhere.yaml: No such file"),
        (({},), "job: "),
        (({"spec": {1, 2}},), "job: Object of type set"),
        (({"kind": "TpuTrainingJob", "spec": []},), "job: "),
    ],
)
def test_what_is_no_job_is_refused(arguments: tuple[object], words: str) -> None:
    with pytest.raises(tpujob.CommandError, match=re.escape(words)):
        tpujob.run(*arguments)  # type: ignore[arg-type]


def test_options_of_programs_are_refused_for_a_job() -> None:
    with pytest.raises(tpujob.CommandError, match="go with a program"):
        tpujob.run({"spec": {}}, ["--fast"])
    with pytest.raises(tpujob.CommandError, match="set: "):
        tpujob.run({"spec": {}}, set={"spec.slices": object()})
    with pytest.raises(tpujob.CommandError, match=r"set: 'spec\.slices=2' has a value in its name"):
        tpujob.run({"spec": {}}, set={"spec.slices=2": 2})


@pytest.mark.parametrize(
    "value", ["a: b", "1e-3", "null", "\N{SLIGHTLY SMILING FACE} \N{GREEK SMALL LETTER PI}", '"', "", "x\ny"]
)
def test_a_value_is_set_as_it_is(value: str) -> None:
    changes = settings_of({"spec.command[0]": value, "spec.trainer": None})
    spec = with_fields({"spec": {"command": ["x"], "trainer": {}}}, changes)["spec"]
    assert spec == {"command": [value]}


def test_the_package_lists_its_functions_and_has_no_others() -> None:
    assert set(tpujob.__all__) <= set(dir(tpujob))
    assert all(getattr(tpujob, name).__doc__ for name in tpujob.__all__)
    with pytest.raises(AttributeError, match="no attribute 'train'"):
        _ = tpujob.train
