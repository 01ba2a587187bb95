"""Whatever the world does, at whatever moment: no commit is lost, no number changes, and the end says what it was.

Some cells in every run of the tests; all of them, and the table, by `make faults`.
"""

import dataclasses
import json
import logging

import pytest

from tests.harness import processes
from tests.multiprocess import fault_table
from tests.multiprocess.outages import cells
from tests.multiprocess.outages.cells import TABLE, Cell
from tests.multiprocess.outages.play import Reference, play_cell

logger = logging.getLogger(__name__)

pytestmark = pytest.mark.processes

AT_ONCE = 4
TABLE_SECONDS = 7200

TELLING = (
    Cell("cut answers, for a while", "restore"),
    Cell("DNS gone, for a while", "data"),
    Cell("full disk, for a while", "export"),
    Cell("403", "extract"),
)


@pytest.fixture(scope="module")
def config(trainer_block):
    block = trainer_block(
        steps=cells.STEPS,
        every_steps=cells.EVERY,
        evaluation={"everySteps": 6, "batches": 4},
        export={},
    )
    block["watchdog"] = {"stepSeconds": cells.STEP_SECONDS, "phaseSeconds": cells.PHASE_SECONDS}
    block["checkpoint"] |= {"timeoutSeconds": 30}
    return block


@pytest.fixture(scope="module")
def reference(bucket, corpus, config, tmp_path_factory):
    """The same run without a fault; its data are in the bucket."""
    for file in corpus.glob("*.parquet"):
        bucket.write(f"corpus/{file.name}", file.read_bytes())
    data = f"gs://{bucket.name}/corpus/*.parquet"
    with processes.start(
        tmp_path_factory.mktemp("reference") / "logs",
        processes=cells.PROCESSES,
        devices=1,
        config={**config, "data": {"path": data, "retrySeconds": cells.RETRY_SECONDS}},
        checkpoint_dir=f"gs://{bucket.name}/reference",
        extra=bucket.environment,
    ) as undisturbed:
        codes = undisturbed.wait()
        assert codes == [0, 0], undisturbed.explain()
    assert json.loads(bucket.read("reference/latest.json"))["step"] == cells.STEPS
    return Reference(bucket, "reference", undisturbed[0].losses, data)


@pytest.fixture(scope="module")
def found(config, reference, request):
    """The outcomes of the cells, by cell."""

    def play_one(cell, place):
        outcome = play_cell(cell, place, config, reference)
        (place / "outcome.json").write_text(json.dumps(dataclasses.asdict(outcome)))
        logger.info("%s: %s, %.0f s, %s", cell.key, outcome.codes, outcome.seconds, outcome.problems())
        return outcome

    return fault_table.play(request, play_one, at_once=AT_ONCE, show=cells.markdown, can_play=cells.can_play)


@pytest.mark.parametrize("cell", fault_table.parameters(TELLING, TABLE, seconds=TABLE_SECONDS))
def test_outage_loses_nothing_and_is_named(cell, found):
    fault_table.require_well(found, cell, "this machine cannot play it: not the superuser, or no memory groups")
