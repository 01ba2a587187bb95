"""Where a process stands, from its environment alone."""

from tests.harness.launched import JOB, WORKER
from tpujob_sdk import Place, place


def test_place_of_a_process_of_a_job() -> None:
    expected = Place(process=7, processes=8, slice=1, slices=2, host=3, hosts_per_slice=4, chips_per_host=4)
    assert place(JOB) == expected
    assert not place(JOB).is_lead


def test_place_of_a_worker() -> None:
    assert place(WORKER) == Place(process=5, processes=32, chips_per_host=4)


def test_place_outside_of_a_job() -> None:
    assert place({}) == Place()
    assert place({}).is_lead
