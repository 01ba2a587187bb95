"""The simulated launchers of `make bench-launchers` speak as launcher 0 of this release understands."""

from benchmarks.launchers import measure

SIZE, REAL = 8, 2
START, RESTART = ("hello", "state"), ("state", "ready", "state")


def test_real_and_simulated_launchers_start_again_together() -> None:
    found = measure(SIZE, REAL, training_seconds=0.0)
    assert 0 < found["told"] <= found["all"], found
    assert found["met_sent"][0] >= len(START) * (SIZE - REAL), found
    assert found["sent"][0] == len(RESTART) * (SIZE - REAL), found
