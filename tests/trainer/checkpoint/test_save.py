"""How the processes learn what became of a save."""

import json
import threading
import time

import pytest

from tpujob_trainer.checkpoint import layout
from tpujob_trainer.checkpoint.lease import Cancellation
from tpujob_trainer.checkpoint.save import PendingSave
from tpujob_trainer.distributed import kv_store
from tpujob_trainer.distributed.initialize import Runtime

LIMIT_SECONDS = 60.0


class Service:
    """The key-value store of two processes, of which one is here; it counts what it is asked."""

    def __init__(self):
        self.questions: list[str] = []
        self.values: dict[str, str] = {}
        self.asked = threading.Event()
        self.changed = threading.Condition()

    def key_value_set(self, key, value):
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def blocking_key_value_get(self, key, timeout_in_ms):
        self.questions.append(key)
        self.asked.set()
        with self.changed:
            if not self.changed.wait_for(lambda: key in self.values, timeout_in_ms / 1000):
                raise RuntimeError("DEADLINE_EXCEEDED: nobody said it")
            return self.values[key]

    def key_value_dir_get(self, key):
        return []

    def wait_at_barrier(self, barrier_id, timeout_in_ms):
        pass


class Checkpointer:
    """Has written at once, or fails."""

    def __init__(self, error=None):
        self.error = error

    def wait_until_finished(self):
        if self.error is not None:
            raise self.error


@pytest.fixture
def service():
    return Service()


@pytest.fixture
def pending(service, tmp_path):
    """A function that begins to wait for a save, in process 1."""
    talk = kv_store.Coordination(service, process_id=1, hosts=["a", "b"])
    runtime = Runtime(process_id=1, num_processes=2, attempt_id="0.0-x", host="b", coordination=talk)

    def begin(limit_seconds, error=None):
        return PendingSave(
            Checkpointer(error),
            str(tmp_path),
            7,
            name="save/1",
            limit_seconds=limit_seconds,
            runtime=runtime,
            begun=time.monotonic(),
        )

    return begin


def test_process_asks_once_for_the_outcome(service, pending):
    save = pending(LIMIT_SECONDS)
    assert service.asked.wait(LIMIT_SECONDS)
    assert not save.is_over
    service.key_value_set(
        f"{kv_store.PREFIX}save/1/outcome",
        json.dumps({"commit": {"step": 7, "time": 1.0}, "problem": "", "is_refused": False, "is_broken": False}),
    )
    assert save.wait(LIMIT_SECONDS)
    assert save.outcome.commit == layout.Commit(7, 1.0)
    assert service.questions == [f"{kv_store.PREFIX}save/1/outcome"]


@pytest.mark.parametrize(
    ("limit_seconds", "error", "problem", "is_broken"),
    [
        (
            0.5,
            TimeoutError("Timed out while waiting for async_write_complete barrier."),
            "not committed within 0.5 s",
            False,
        ),
        (0.5, RuntimeError("DEADLINE_EXCEEDED: Barrier timed out"), "not committed within 0.5 s", False),
        (0.5, OSError("Input/output error"), "process 1: OSError: Input/output error", True),
        (LIMIT_SECONDS, TimeoutError("early"), "process 1: TimeoutError: early", True),
    ],
)
def test_limit_of_orbax_is_told_as_ours(pending, limit_seconds, error, problem, is_broken):
    save = pending(limit_seconds, error)
    assert save.wait(LIMIT_SECONDS)
    assert (save.outcome.problem, save.outcome.is_broken) == (problem, is_broken)


class Canceled:
    """A checkpointer that may be canceled."""

    times = 0

    def cancel(self):
        self.times += 1


@pytest.mark.parametrize(("is_begun", "times"), [(True, 1), (False, 0)])
def test_only_a_save_that_was_begun_is_canceled(is_begun, times):
    """The threads of another one would be woken, and write."""
    cancellation, checkpointer = Cancellation(), Canceled()
    (cancellation.begun if is_begun else cancellation.failed)()
    cancellation.cancel(checkpointer, OSError("no folder"))
    assert checkpointer.times == times
    assert str(cancellation.cause) == "no folder"
