from pathlib import Path

import pytest

from tpujob.local.outcome import judge, summary
from tpujob.local.plan import LocalProcess
from tpujob.local.supervisor import Exit
from tpujob_contract.reports.termination_message import failure_line, stopped_line


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
    ("exits", "names", "code", "culprit"),
    [
        pytest.param([ending(1, 1), ending(0, 1)], 0, 1, 0, id="the echo ended before the cause"),
        pytest.param([ending(1, 1), ending(0, 137, asked=True)], 0, 1, 0, id="the cause hung and was killed"),
        pytest.param(
            [ending(1, 1), ending(0, 3, asked=True)], 0, 3, 0, id="the cause was asked to stop while it ended"
        ),
        pytest.param([ending(1, 78), ending(0, 78)], 0, 78, 0, id="a fatal code is everybody's"),
        pytest.param([ending(1, 1), ending(0, 0)], 0, 1, 1, id="a process that finished is no culprit"),
        pytest.param([ending(1, 79), ending(0, 79)], 1, 79, 1, id="it names itself"),
    ],
)
def test_the_culprit_is_who_the_others_name(exits, names, code, culprit):
    message = f"host-1: process 1 of 2: ended with process {names} on host h, which was first: ValueError: x"
    outcome = judge(exits, {1: message})
    assert (outcome.exit_code, outcome.culprit.process.index if outcome.culprit else None) == (code, culprit)


def test_who_names_a_culprit_that_left_no_message_is_its_witness():
    message = "lost process 0 on host h: its connection broke: it was killed or crashed"
    outcome = judge([ending(1, 1), ending(0, 137)], {1: message})
    assert outcome.culprit is not None
    assert outcome.witness is not None
    assert (outcome.culprit.process.index, outcome.witness.process.index) == (0, 1)


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
        pytest.param([ending(0, 1), ending(1, 75)], {0: 10.0, 1: 10.3}, 75, None, id="asked for another start"),
        pytest.param([ending(0, 1), ending(1, 137, asked=True)], {0: 10.0}, 1, 0, id="killed, it did not leave"),
    ],
)
def test_the_culprit_is_who_failed_first(exits, failed_at, code, culprit):
    outcome = judge(exits, {index: failure_line(moment, "E: a") for index, moment in failed_at.items()})
    assert (outcome.exit_code, outcome.culprit.process.index if outcome.culprit else None) == (code, culprit)


@pytest.mark.parametrize(
    ("stopped_at", "code"),
    [
        pytest.param(9.5, 75, id="evicted, and its peer fails since it is gone"),
        pytest.param(10.5, 1, id="asked to stop since its peer has failed"),
    ],
)
def test_who_was_asked_to_stop_before_another_failed_explains_it(stopped_at, code):
    messages = {0: failure_line(10.0, "E: a"), 1: stopped_line(stopped_at)}
    assert judge([ending(0, 1), ending(1, 75, asked=True)], messages).exit_code == code
