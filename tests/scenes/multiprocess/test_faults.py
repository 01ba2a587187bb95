"""The fault table: whatever happens to one process, all end in time, with the right exit code, naming the culprit.

Some cells in every run of the tests; all of them, and the table, by `make faults`.
"""

import logging

import pytest

from tests.multiprocess import fault_table, faults
from tests.multiprocess.faults import TABLE, Cell

logger = logging.getLogger(__name__)

pytestmark = pytest.mark.processes

AT_ONCE = 4
"""Cells that are played at the same time: a third of them mostly wait."""
TABLE_SECONDS = 3600

TELLING = (
    Cell("exception", 1, "evaluate"),
    # The judge itself is silent, and JAX's service is not there yet.
    Cell("SIGSTOP", 0, "start"),
    # The watchdog, and the one that names who is behind.
    Cell("sleep", 1, "step"),
    # In the middle of the loop.
    Cell("SIGTERM", 1, "sample"),
)


@pytest.fixture(scope="module")
def config(trainer_block):
    return trainer_block(steps=100_000, every_steps=4)


@pytest.fixture(scope="module")
def found(config, request):
    """The outcomes of the cells, by cell."""

    def play_one(cell, place):
        outcome = faults.run(cell, place, config)
        logger.info("%s: %s, %.0f s", cell.key, outcome.codes, outcome.seconds)
        return outcome

    return fault_table.play(request, play_one, at_once=AT_ONCE, show=faults.markdown)


@pytest.mark.parametrize("cell", fault_table.parameters(TELLING, TABLE, seconds=TABLE_SECONDS))
def test_fault_ends_everywhere_and_names_the_culprit(cell, found):
    fault_table.require_well(found, cell)


@pytest.mark.parametrize("cell", [Cell("SIGTERM", 1, "sample")], ids=lambda cell: cell.key)
def test_request_to_stop_in_a_sample_costs_no_step(cell, found):
    outcome = found[cell].result()
    assert [message for message in outcome.messages if "what was committed is there" not in message] == []
    assert outcome.last["committed_step"] == outcome.last["step"]


@pytest.mark.parametrize("cell", [Cell("sleep", 1, "step")], ids=lambda cell: cell.key)
def test_stall_leaves_the_stacks_of_all_processes(cell, found):
    outcome = found[cell].result()
    assert len(outcome.stacks) == 2, outcome.explanation
    assert all(text.startswith("Thread MainThread:") for text in outcome.stacks)
    # Of one, where it sleeps; of the other, where it waits.
    assert sorted(faults.SLEEPS in text for text in outcome.stacks) == [False, True]


@pytest.mark.parametrize("cell", [Cell("sleep", 1, "step")], ids=lambda cell: cell.key)
def test_report_names_the_straggler_before_the_watchdog_ends_it(cell, found):
    outcome = found[cell].result()
    assert outcome.straggler.startswith("process 1 on host"), outcome.explanation
    assert faults.SLEEPS in outcome.straggler
