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


def play(cells, folder, config):
    """What is to be seen of the cells, by cell."""
    return fault_table.play(
        cells, folder, lambda cell, place: program_faults.play(cell, place, config), at_once=AT_ONCE
    )


@pytest.fixture(scope="module")
def telling(tmp_path_factory, config):
    return play(TELLING, tmp_path_factory.mktemp("telling"), config)


@pytest.fixture(scope="module")
def table(tmp_path_factory, config, request):
    """All cells that were asked for, written into the page."""
    asked = [cell for cell in fault_table.asked_for(TABLE, request) if program_faults.is_installed(cell.program)]
    found = play(asked, tmp_path_factory.mktemp("table"), config)
    page = program_faults.updated(PAGE.read_text(), fault_table.ended(found))
    PAGE.write_text(page)
    return found


@pytest.mark.parametrize("cell", TELLING, ids=lambda cell: cell.key)
def test_telling_fault_is_named_and_ends_the_run(cell, telling):
    seen = telling[cell].result()
    assert not seen.problems(), seen.text


@pytest.mark.faults
@pytest.mark.timeout(TABLE_SECONDS)
@pytest.mark.parametrize("cell", TABLE, ids=lambda cell: cell.key)
def test_fault_is_named_and_ends_the_run(cell, table):
    if not program_faults.is_installed(cell.program):
        pytest.skip(f"{cell.program} is not installed: `make pytorch maxtext` does it")
    seen = table[cell].result()
    assert not seen.problems(), seen.text
