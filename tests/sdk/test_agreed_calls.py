"""A call that not all processes make is named at once, with its file and line."""

import contextlib
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.processes import start
from tests.key_values import KeyValuesOfOne
from tpujob_contract import ExitCode
from tpujob_sdk import agreed_calls
from tpujob_sdk.agreed_calls import AgreedCalls
from tpujob_trainer.distributed.kv_store import Coordination
from tpujob_trainer.values.errors import ConfigurationError

HERE = Path(__file__)
PROGRAM = HERE.with_name("uneven_loop.py")


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> tuple[AgreedCalls, AgreedCalls]:
    monkeypatch.setattr(agreed_calls, "POLL_SECONDS", 0.02)
    store, hosts = KeyValuesOfOne(2), ["h0", "h1"]
    first, second = (AgreedCalls(Coordination(store, process_id=i, hosts=hosts)) for i in range(2))
    return first, second


def play(calls: AgreedCalls, loop: Callable[[AgreedCalls], None]) -> threading.Thread:
    def run() -> None:
        with contextlib.suppress(ConfigurationError):  # the other process of a call that is not alike
            loop(calls)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_call_that_all_make_returns_however_far_apart_they_come(pair: tuple[AgreedCalls, AgreedCalls]) -> None:
    def loop(calls: AgreedCalls) -> None:
        for step in range(1, 4):
            calls.looked()
            calls.reported(step)
            calls.meet(f"checkpoints.save({step})", step)

    first, second = pair
    threads = [play(first, loop), play(second, loop)]
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda calls: calls.meet("checkpoints.save(6)", 6), r"process 1 calls checkpoints\.save\(6\) at .*:\d+"),
        (lambda calls: calls.meet("the end of the loop"), r"process 1 calls the end of the loop"),
        (lambda calls: calls.looked(), r"process 1 has gone on without it: job\.stop_requested\(\) at .*:\d+"),
        (lambda calls: calls.reported(6), r"process 1 has gone on without it: job\.report\(step=6\) at .*:\d+"),
    ],
    ids=["another step", "the end", "the next look", "the next report"],
)
def test_call_that_the_other_does_not_make_is_named(
    pair: tuple[AgreedCalls, AgreedCalls], other: Callable[[AgreedCalls], None], words: str
) -> None:
    for calls in pair:
        calls.looked()
        calls.reported(5)

    first, second = pair
    play(second, other)
    with pytest.raises(ConfigurationError, match=words) as error:
        first.meet("checkpoints.save(5)", 5)
    assert f"process 0 calls checkpoints.save(5) at {HERE}:" in str(error.value)


def test_process_on_its_own_waits_for_nobody() -> None:
    AgreedCalls(Coordination(None, process_id=0, hosts=["h"])).meet("checkpoints.save(5)", 5)


@pytest.mark.processes
@pytest.mark.parametrize("call", ["save", "restore", "finish", "lanes"])
def test_call_of_process_0_alone_ends_the_run_with_both_places(tmp_path: Path, call: str) -> None:
    (tmp_path / "text.txt").write_text("tick tock\n" * 100)
    run = start(
        tmp_path / "logs",
        processes=2,
        devices=1,
        config={},
        checkpoint_dir=tmp_path / "checkpoints",
        program=(str(PROGRAM),),
        extra={"CALL": call, "TEXT": str(tmp_path / "text.txt"), "TPUJOB_CONFIG": ""},
    )
    assert run.wait() == [ExitCode.CONFIGURATION] * 2, run.explain()
    line = 1 + next(n for n, text in enumerate(PROGRAM.read_text().splitlines()) if f'"{call}": ' in text)
    if call == "finish":
        line = 1 + next(n for n, text in enumerate(PROGRAM.read_text().splitlines()) if "calls[os" in text)
    said = run[0].termination_message
    assert f"process 0 calls {'job' if call == 'lanes' else 'checkpoints'}.{call}(" in said
    # Process 1 is at the next call of its loop, or the one after it.
    beyond = (
        rf"and process 1 has gone on without it: job\.(stop_requested|report)\([^)]*\) at {re.escape(str(PROGRAM))}:"
    )
    assert re.search(rf"{re.escape(str(PROGRAM))}:{line}, {beyond}", said), said
