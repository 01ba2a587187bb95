"""Which host is slow, odd or wrong, from what all hosts say."""

import dataclasses

import pytest

from tpujob_trainer.distributed.host_check import GIB, HostFacts, warnings, wrong_hosts

GOOD = HostFacts(ready_seconds=0.1, clock=1000.0, memory_bytes=64 * GIB, disk_bytes=64 * GIB)


def name(process: int) -> str:
    return f"host-{process}"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"ready_seconds": 0.9}, None),
        ({"ready_seconds": 3.0}, "host-2 is slow: its devices were ready after 3.0 s, the median host's after 0.1 s"),
        ({"clock": 1004.0}, None),
        ({"clock": 1060.0}, "host-2 has a clock 60 s ahead of the median host's"),
        ({"clock": 940.0}, "host-2 has a clock 60 s behind the median host's"),
        ({"memory_bytes": GIB // 2}, "host-2 has 0.5 GiB of free memory"),
        ({"disk_bytes": 0}, "host-2 has 0.0 GiB of free disk"),
    ],
    ids=str,
)
def test_host_that_differs_is_named(changes: dict[str, float], words: str | None) -> None:
    hosts = [GOOD, GOOD, dataclasses.replace(GOOD, **changes), GOOD]  # type: ignore[arg-type]
    found = warnings([dataclasses.asdict(host) for host in hosts], name)
    assert [line[: len(words)] for line in found] == [words] if words else found == []


def test_all_hosts_slow_alike_are_not_slow() -> None:
    slow = dataclasses.replace(GOOD, ready_seconds=30.0)
    assert warnings([dataclasses.asdict(slow)] * 4, name) == []


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ([[], [], []], None),
        ([[2], [2], [2]], "host-1 contributed wrong numbers"),
        ([[], [0, 4], []], "host-1 received wrong numbers"),
        ([[2, 3], [2, 3, 5], [2, 3]], "host-1 contributed wrong numbers; host-1 received wrong numbers"),
        ([[0, 5], [0, 5], [0, 5]], "host-0, host-2 contributed wrong numbers"),
    ],
    ids=str,
)
def test_wrong_host_is_named(results: list[list[int]], words: str | None) -> None:
    assert wrong_hosts(results, [0, 0, 1, 1, 2, 2], name) == words
