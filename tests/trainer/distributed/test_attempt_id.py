"""The name of an attempt, by which later ones take over what an earlier one held."""

import pytest

from tests.harness.launched import JOB
from tpujob_contract import read_environment
from tpujob_trainer.distributed.initialize import start

ALONE = {**JOB, "TPUJOB_SLICES": "1", "TPUJOB_HOSTS_PER_SLICE": "1", "TPUJOB_SLICE": "0", "TPUJOB_HOST": "0"}


@pytest.mark.parametrize(("restarts", "expected"), [("", "3.2"), ("0", "3.2"), ("1", "3.2.1"), ("10", "3.2.10")])
def test_a_restart_in_place_is_part_of_the_attempt(restarts: str, expected: str) -> None:
    environ = {**ALONE, "TPUJOB_INCARNATION": "3", "TPUJOB_ATTEMPT": "2", "TPUJOB_IN_PLACE_ATTEMPT": restarts}
    runtime = start(read_environment(environ), heartbeat_seconds=30, configuration_hash="")
    assert runtime.attempt_id.rpartition("-")[0] == expected
