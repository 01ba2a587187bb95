"""The table of random faults, and which processes of a machine are those of a pod."""

import pytest

from benchmarks.random_pod_faults import COUNTS, is_of
from benchmarks.random_rounds import Struck, table_of
from benchmarks.recovery import programs
from tests.e2e import host_processes

UID = "eabebb0c-bb48-4c4f-85e9-7f6822eeddc0"


@pytest.mark.parametrize(
    ("apart", "row"),
    [
        ("", "| trainer | 2 | 1 | 1 | 20 s, at most 20 s | at most 3 |"),
        ("Ctrl-C", "| trainer | 2 | 1 | 0 | 1 | 20 s, at most 20 s | at most 3 |"),
    ],
)
def test_a_row_says_what_faults_cost(apart: str, row: str) -> None:
    struck = [Struck("kill -9", True, 9.0, 3), Struck("Ctrl-C", False, 20.0, 0)]
    assert table_of({"trainer": struck, "MaxText": []}, apart).splitlines()[2:] == [row]


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        (f"0::/kubepods/burstable/pod{UID}/main", True),
        (f"0::/kubepods-burstable-pod{UID.replace('-', '_')}.slice/main", True),
        ("0::/kubepods/burstable/pod11111111-bb48-4c4f-85e9-7f6822eeddc0/main", False),
        ("", False),
    ],
    ids=["cgroupfs", "systemd", "another pod", "ended"],
)
def test_a_process_is_of_the_pod_whose_control_group_has_it(
    monkeypatch: pytest.MonkeyPatch, cgroup: str, expected: bool
) -> None:
    monkeypatch.setattr(host_processes, "cgroup", lambda process: cgroup)
    assert is_of({UID}, 1) is expected


def test_the_trainers_batch_divides_over_its_pods() -> None:
    rows = programs.trainer("gs://bucket/text")["batchSize"]
    assert [count for count in COUNTS["trainer"] if rows % count] == []
    assert COUNTS.keys() == programs.STEP_LINES.keys()
