"""Batches of units on their way to the devices and back, with a program that answers when it is told to."""

import threading
from typing import Any

import numpy as np
import pytest

from tpujob_trainer.corpus.extract.batched import UNDER_WAY, BatchedWork
from tpujob_trainer.corpus.extract.batches import most_rows
from tpujob_trainer.corpus.extract.config import ExtractConfig
from tpujob_trainer.corpus.extract.rows import Rows

BATCH, LENGTH = 2, 16


class Program:
    """Ten times each token, once it may arrive."""

    per_token = frozenset({"x"})
    is_packed = True
    devices = 2

    def __init__(self):
        self.may_arrive = threading.Semaphore(0)
        self.given = self.arrived = self.most = 0
        self.fails = False

    def most_rows(self, length):
        return most_rows(length)

    def __call__(self, sequences):
        self.given += 1
        self.most = max(self.most, self.given - self.arrived)
        return {"x": {"values": _Late(self, sequences.tokens[:, :, None] * 10)}}


class _Late:
    """An array on a device."""

    def __init__(self, program, values):
        self._program, self._values = program, values

    def copy_to_host_async(self):
        pass

    def __array__(self, dtype=None, copy=None):
        assert self._program.may_arrive.acquire(timeout=300)
        self._program.arrived += 1
        if self._program.fails:
            raise RuntimeError("broken on purpose")
        return self._values


@pytest.fixture
def program():
    return Program()


@pytest.fixture
def work(program):
    reads_nothing: Any = None
    return BatchedWork(
        ExtractConfig(layers=(0,)),
        reads_nothing,
        program,
        buckets=(LENGTH,),
        batch=BATCH,
        first_sample=lambda unit: 0,
    )


def _unit(batches):
    rows = batches * BATCH
    lengths = np.arange(rows, dtype=np.int64) % LENGTH + 1
    return Rows(0, np.arange(rows, dtype=np.int32), np.arange(lengths.sum(), dtype=np.int32), lengths, {})


def test_next_unit_starts_before_values_arrive(work, program):
    first, second = _unit(2), _unit(1)
    computing = [work.compute(first), work.compute(second)]
    assert (program.given, program.arrived) == (3, 0)
    program.may_arrive.release(3)
    for unit, each in zip((first, second), computing, strict=True):
        np.testing.assert_array_equal(each.values().columns["x"][:, 0], unit.tokens * 10)


def test_devices_have_few_batches_at_a_time(work, program):
    program.may_arrive.release(50)
    for _ in range(5):
        work.compute(_unit(10))
    assert program.most <= UNDER_WAY
    assert program.given == 50


def test_batch_waits_for_room(work, program):
    unit = _unit(UNDER_WAY + 1)
    given = threading.Thread(target=work.compute, args=(unit,))
    given.start()
    program.may_arrive.release(1)
    given.join(300)
    assert (program.given, program.most, program.arrived) == (UNDER_WAY + 1, UNDER_WAY, 1)
    program.may_arrive.release(UNDER_WAY)


def test_failure_on_device_is_that_of_its_unit(work, program):
    program.fails = True
    broken = work.compute(_unit(2))
    program.may_arrive.release(2)
    with pytest.raises(RuntimeError, match="on purpose"):
        work.size(broken)
    program.fails = False
    program.may_arrive.release(UNDER_WAY)
    unit = _unit(UNDER_WAY)
    np.testing.assert_array_equal(work.compute(unit).values().columns["x"][:, 0], unit.tokens * 10)
