"""The simulated launchers of `make bench-launchers` speak as launcher 0 of this release understands."""

from benchmarks.launchers import measure

SIZE, REAL = 8, 2
RESTART = ("hello", "end", "restart", "ready", "go")


def test_real_and_simulated_launchers_start_again_together() -> None:
    found = measure(SIZE, REAL)
    assert 0 < found["told"] <= found["all"], found
    assert found["messages"] == len(RESTART) * (SIZE - REAL), found
