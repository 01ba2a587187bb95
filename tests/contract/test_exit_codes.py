import pytest

from tpujob_contract import ExitCode
from tpujob_contract.exit_codes import FATAL, describe


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "0, finished"),
        (1, "1, crashed"),
        (75, "75, asked to stop; state saved"),
        (76, "76, diverged: non-finite loss"),
        (77, "77, no permission or not found"),
        (78, "78, configuration wrong"),
        (79, "79, stalled: no step for the limit"),
        (80, "80, peers missing at start"),
        (134, "134, killed by SIGABRT"),
        (137, "137, killed by SIGKILL"),
        (143, "143, killed by SIGTERM"),
        (-9, "-9, killed by SIGKILL"),
        (128, "128, crashed"),
        (255, "255, crashed"),
    ],
)
def test_code_in_words(code, words):
    assert describe(code) == words


def test_codes_are_a_wire_protocol():
    """Pods of an older image meet a newer operator: these numbers may be added to, never changed."""
    assert {code.name: code.value for code in ExitCode} == {
        "FINISHED": 0,
        "TPU_HELD": 69,
        "STOPPED": 75,
        "DIVERGED": 76,
        "NOT_FOUND": 77,
        "CONFIGURATION": 78,
        "STALLED": 79,
        "PEERS_MISSING": 80,
    }
    assert FATAL == (76, 77, 78)
