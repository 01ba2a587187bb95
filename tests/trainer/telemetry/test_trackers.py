"""Trackers that fail, block and come back; the real ones are in test_tracker_files.py and tests/multiprocess."""

import functools
import logging
import threading

import pytest

from tools.localcluster.waiting import wait_for
from tpujob_trainer.telemetry.trackers import Background, Trackers


def scalars(step, to):
    to.scalars(step, {})


class Kept:
    """A tracker that keeps what it is told; fails for the steps it is given, and blocks while it is held."""

    def __init__(self, failing=()):
        self.told: list[tuple] = []
        self.closed = False
        self.free = threading.Event()
        self.free.set()
        self._failing = failing

    def scalars(self, step, values):
        self.free.wait()
        if step in self._failing:
            raise OSError(f"no connection at {step}")
        self.told.append((step, values))

    def text(self, step, prompt, text):
        self.told.append((step, text))

    def close(self):
        self.closed = True


def test_everything_is_told_in_order_by_the_end():
    kept = Kept()
    trackers = Trackers([Background("kept", lambda: kept)])
    for step in range(50):
        trackers.scalars(step, {"train/loss": 1.0 / (step + 1)})
    trackers.text(50, "a", "a text")
    trackers.close(60)
    assert [step for step, _ in kept.told] == list(range(51))
    assert kept.told[-1] == (50, "a text")
    assert kept.closed


def test_failures_are_counted_and_said_once(caplog):
    kept = Kept(failing=(1, 2))
    lost: list[str] = []
    background = Background("kept", lambda: kept, lost=lost.append)
    for step in range(4):
        background.tell(functools.partial(scalars, step))
    assert background.close(60)
    assert [step for step, _ in kept.told] == [0, 3]
    assert lost == ["kept", "kept"]
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["The tracker kept: OSError: no connection at 1; the training goes on, and this is said once"]


def test_a_tracker_that_hangs_keeps_nobody_waiting(caplog):
    kept = Kept()
    lost: list[str] = []
    kept.free.clear()
    background = Background("kept", lambda: kept, lost=lost.append, queue_length=3)
    for step in range(10):
        background.tell(functools.partial(scalars, step))
    assert 6 <= len(lost) <= 7  # three wait, and perhaps one is being told
    assert not background.close(0.05)
    assert "slower than the training" in caplog.text
    kept.free.set()
    wait_for("the rest to be told", lambda: len(kept.told) + len(lost) == 10)


def test_one_that_cannot_be_opened_is_tried_again():
    kept, tries = Kept(), []

    def open_tracker():
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("the service is away")
        return kept

    lost: list[str] = []
    background = Background("kept", open_tracker, lost=lost.append, reopen_seconds=0)
    for step in range(4):
        background.tell(functools.partial(scalars, step))
    assert background.close(60)
    # Tried at the start and with each event.
    assert [step for step, _ in kept.told] == [1, 2, 3]
    assert lost == ["kept"]


def test_one_that_was_never_opened_ends_with_the_run():
    def open_tracker():
        raise ConnectionError("the service is away")

    background = Background("kept", open_tracker)
    background.tell(functools.partial(scalars, 1))
    assert background.close(60)


@pytest.mark.parametrize("trackers", [Trackers(), Trackers([])])
def test_none_is_fine(trackers):
    trackers.scalars(1, {"train/loss": 1.0})
    trackers.text(1, "", "")
    trackers.close(0)
