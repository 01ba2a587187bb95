"""Whatever ends one process under `tpujob run`, it is named, all end or start again, and it is to blame.

Some cells in every run of the tests; all of them, and the table of the page, by `make faults`.
"""

import pytest

from tests.multiprocess import fault_table, program_faults
from tests.multiprocess.program_faults import PAGE, TABLE, Cell

pytestmark = pytest.mark.processes

AT_ONCE = 2
TABLE_SECONDS = 3600

TELLING = (
    # JAX's exit handler waits for the others, the coordinator's for all.
    Cell("plain JAX", "exception", 0),
    Cell("plain JAX", "exception", 1),
    # Its peer raises a moment later, and its launcher may say so first.
    Cell("plain JAX", "kill -9", 1),
    # The same with launchers that start all again: the launcher of the peer may speak first here, too.
    Cell("plain JAX", "kill -9", 1, in_place=True),
)


@pytest.fixture(scope="module")
def config(trainer_block):
    return trainer_block(steps=100_000, every_steps=4)


@pytest.fixture(scope="module")
def found(config, request):
    """What is to be seen of the cells, by cell; of the whole table, written into the page, too."""
    return fault_table.play(
        request,
        lambda cell, place: program_faults.play(cell, place, config),
        at_once=AT_ONCE,
        show=write_into_page,
        can_play=lambda cell: program_faults.is_installed(cell.program),
    )


def write_into_page(seen):
    PAGE.write_text(program_faults.updated(PAGE.read_text(), seen))


@pytest.mark.parametrize("cell", fault_table.parameters(TELLING, TABLE, seconds=TABLE_SECONDS))
def test_fault_is_named_and_ends_the_run(cell, found):
    fault_table.require_well(found, cell, f"{cell.program} is not installed: `make pytorch maxtext` does it")
