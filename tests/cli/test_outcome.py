from pathlib import Path

import pytest

from tpujob.local.outcome import judge, summary
from tpujob.local.plan import LocalProcess
from tpujob.local.supervisor import Exit
from tpujob_contract.reports.termination_message import named_in


def ending(index: int, code: int, *, asked: bool = False) -> Exit:
    process = LocalProcess(
        index=index,
        name=f"job-w-0-{index}",
        argv=(),
        environ={},
        report_port=1,
        log=Path("log"),
        termination_log=Path("ending"),
    )
    return Exit(process=process, code=code, asked_to_stop=asked, killed=False)


@pytest.mark.parametrize(
    ("exits", "phase", "code", "culprit"),
    [
        pytest.param([ending(0, 0), ending(1, 0)], "Succeeded", 0, None, id="all finish"),
        pytest.param([ending(0, 0), ending(1, 0)], "Succeeded", 0, None, id="finished before it heard Ctrl-C"),
        pytest.param([ending(0, 75, asked=True), ending(1, 75, asked=True)], "Suspended", 75, None, id="Ctrl-C"),
        pytest.param([ending(0, 137, asked=True), ending(1, 75, asked=True)], "Suspended", 75, None, id="Ctrl-C twice"),
        pytest.param(
            [ending(1, 75), ending(0, 75, asked=True)], "Suspended", 75, None, id="one told to stop from outside"
        ),
        pytest.param(
            [ending(1, 137), ending(0, 1, asked=True)], "Failed", 137, 1, id="the first failure is the culprit"
        ),
        pytest.param(
            [ending(0, 134), ending(1, 77, asked=True)], "Failed", 77, 1, id="a fatal code wins, though later"
        ),
        pytest.param([ending(0, 0), ending(1, 1)], "Failed", 1, 1, id="one finished, one crashed"),
        pytest.param([ending(1, 1), ending(0, 75, asked=True)], "Failed", 1, 1, id="crashed before Ctrl-C"),
    ],
)
def test_endings_make_an_outcome(exits, phase, code, culprit):
    outcome = judge(exits)
    assert (outcome.phase, outcome.exit_code) == (phase, code)
    assert (outcome.culprit.process.index if outcome.culprit else None) == culprit


@pytest.mark.parametrize(
    ("message", "process"),
    [
        ("host-1: process 1 of 2: ended with process 0 on host host-0, which was first: ValueError: x", 0),
        ("host-1: process 1 of 2: lost process 3 on host host-3: silent for 20 s: it hangs", 3),
        ("no step for 90 s; behind the others: process 1 on host b (training, after step 3, at a.py)", 1),
        ("host-1: process 1 of 2: ValueError: wrong", None),
        ("", None),
    ],
    ids=["ended with", "lost", "behind", "own", "none"],
)
def test_a_message_names_who_was_first(message, process):
    assert named_in(message) == process


@pytest.mark.parametrize(
    ("exits", "named", "code", "culprit"),
    [
        pytest.param([ending(1, 1), ending(0, 1)], {1: 0}, 1, 0, id="the echo ended before the cause"),
        pytest.param([ending(1, 1), ending(0, 137, asked=True)], {1: 0}, 1, 0, id="the cause hung and was killed"),
        pytest.param(
            [ending(1, 1), ending(0, 3, asked=True)], {1: 0}, 3, 0, id="the cause was asked to stop while it ended"
        ),
        pytest.param([ending(1, 78), ending(0, 78)], {1: 0}, 78, 0, id="a fatal code is everybody's"),
        pytest.param([ending(1, 1), ending(0, 0)], {1: 0}, 1, 1, id="a process that finished is no culprit"),
        pytest.param([ending(1, 79), ending(0, 79)], {1: 1}, 79, 1, id="it names itself"),
    ],
)
def test_the_culprit_is_who_the_others_name(exits, named, code, culprit):
    outcome = judge(exits, named)
    assert (outcome.exit_code, outcome.culprit.process.index if outcome.culprit else None) == (code, culprit)


def test_the_reason_names_process_code_and_meaning():
    assert judge([ending(1, 77)]).reason == ("process 1 (job-w-0-1): exit code 77, no permission or not found")


def test_the_summary_has_the_documented_keys():
    report = {
        "step": 3,
        "steps": 9,
        "loss_first": 5.0,
        "loss": 2.0,
        "tokens_per_second": 7,
        "checkpoint": "d",
        "restored_from": 1,
    }
    made = summary(judge([ending(0, 75, asked=True)]), report, processes=2)
    wanted = {
        "phase",
        "step",
        "loss_first",
        "loss_last",
        "tokens_per_second",
        "checkpoint",
        "restored_from",
        "processes",
    }
    assert wanted <= set(made)
    assert (made["phase"], made["loss_last"], made["processes"], made["exit_code"]) == ("Suspended", 2.0, 2, 75)


@pytest.mark.parametrize(
    ("exits", "failed_at", "code", "culprit"),
    [
        pytest.param(
            [ending(0, 1), ending(1, 1)], {0: 12.5, 1: 10.0}, 1, 1, id="who raised first, though it ended last"
        ),
        pytest.param(
            [ending(0, 1), ending(1, 3, asked=True)], {0: 12.5, 1: 10.0}, 3, 1, id="it had failed before it was asked"
        ),
        pytest.param([ending(0, 1), ending(1, 137)], {0: 10.0, 1: 10.3}, 137, 1, id="a kill explains an exception"),
        pytest.param([ending(0, 1), ending(1, 143)], {0: 10.0, 1: 10.3}, 143, 1, id="an eviction explains one"),
        pytest.param([ending(0, 1), ending(1, 75)], {0: 10.0, 1: 10.3}, 75, None, id="asked for another start"),
        pytest.param([ending(0, 1), ending(1, 75)], {0: 10.0, 1: 15.0}, 1, 0, id="asked for one long after"),
        pytest.param([ending(0, 1), ending(1, 137)], {0: 10.0, 1: 15.0}, 1, 0, id="not one that came long before"),
        pytest.param(
            [ending(0, 1), ending(1, 137, asked=True)], {0: 10.0}, 1, 0, id="killed for it did not leave in time"
        ),
        pytest.param(
            [ending(0, 1), ending(1, 137, asked=True)], {0: 40.0, 1: 10.0}, 137, 1, id="frozen before the other raised"
        ),
        pytest.param([ending(0, 1), ending(1, 77)], {0: 10.0, 1: 12.0}, 77, 1, id="a fatal code wins, though later"),
    ],
)
def test_the_culprit_is_who_failed_first(exits, failed_at, code, culprit):
    outcome = judge(exits, None, failed_at)
    assert (outcome.exit_code, outcome.culprit.process.index if outcome.culprit else None) == (code, culprit)


@pytest.mark.parametrize(
    ("stopped_at", "code"),
    [
        pytest.param(9.5, 75, id="evicted, and its peer fails since it is gone"),
        pytest.param(10.5, 1, id="asked to stop since its peer has failed"),
    ],
)
def test_who_was_asked_to_stop_before_another_failed_explains_it(stopped_at, code):
    assert judge([ending(0, 1), ending(1, 75, asked=True)], None, {0: 10.0}, {1: stopped_at}).exit_code == code
