import pytest

from tests.fakes import Clock
from tpujob_trainer.storage.read_meter import ReadMeter
from tpujob_trainer.telemetry.report import Report


def train(meter, clock, *, steps, waiting, computing):
    for _ in range(steps):
        with meter.waiting():
            clock.now += waiting
        clock.now += computing


@pytest.mark.parametrize(("waiting", "fraction"), [(0.0, 0.0), (0.1, 0.1), (1.0, 0.5)], ids=["none", "a tenth", "half"])
def test_fraction_of_the_last_minute(waiting, fraction):
    clock = Clock()
    meter = ReadMeter(clock)

    train(meter, clock, steps=1, waiting=30.0, computing=1.0)  # reading begins: no sign of anything
    train(meter, clock, steps=200, waiting=waiting, computing=1.0 if waiting == 1.0 else 0.9)

    assert meter.wait_fraction() == pytest.approx(fraction, abs=0.02)


def test_nothing_is_known_before_the_second_batch():
    clock = Clock()
    meter = ReadMeter(clock)
    assert meter.facts() == {"data_wait_fraction": None, "data_slow_message": None}

    train(meter, clock, steps=1, waiting=30.0, computing=1.0)

    assert meter.wait_fraction() is None


def test_old_waits_are_forgotten():
    clock = Clock()
    meter = ReadMeter(clock)
    train(meter, clock, steps=60, waiting=1.0, computing=1.0)
    assert meter.slow_message() == "training waited for data for 50% of the last 62 s"

    train(meter, clock, steps=70, waiting=0.0, computing=1.0)

    assert meter.wait_fraction() == 0.0
    assert meter.slow_message() is None


def test_wait_that_goes_on_is_seen_while_nothing_turns():
    clock = Clock()
    meter = ReadMeter(clock)
    report = Report()
    report.follow(meter.facts)
    train(meter, clock, steps=60, waiting=0.0, computing=1.0)
    assert report.snapshot()["data_wait_fraction"] == 0.0

    with meter.waiting():
        clock.now += 40
        facts = report.snapshot()

    assert facts["data_wait_fraction"] == pytest.approx(0.4, abs=0.02)
    assert facts["data_slow_message"].startswith("training waited for data for 4")
