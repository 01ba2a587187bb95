import pytest

from tpujob_contract import ExitCode
from tpujob_contract.exit_codes import FATAL, describe, of_replaced_pod


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
        (81, "81, no further attempt in these containers"),
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
        "NO_ATTEMPT_LEFT": 81,
    }
    assert FATAL == (76, 77, 78)


@pytest.mark.parametrize(
    ("code", "asked", "by_itself"),
    [(0, 0, 0), (1, 143, 1), (75, 75, 81), (76, 76, 76), (78, 78, 78), (80, 143, 80), (137, 137, 81), (143, 143, 81)],
)
def test_a_container_that_is_replaced_alone_says_so_by_its_code(code: int, asked: int, by_itself: int) -> None:
    assert of_replaced_pod(code, was_asked=True) == asked
    assert of_replaced_pod(code, was_asked=False) == by_itself
