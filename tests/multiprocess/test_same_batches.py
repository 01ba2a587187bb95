"""Four processes train like one: the same batches, the same losses, every document once."""

import collections

import numpy as np
import pytest
import tensorstore

from tests.harness import attempt_reports, processes
from tests.multiprocess.conftest import BATCH_SIZE, DOCUMENTS, SEQUENCE_LENGTH
from tpujob_trainer import data

pytestmark = pytest.mark.processes

STEPS = 8
LOSS_TOLERANCE = 2e-4
"""Of losses near 6 that are printed with four decimals: sums over four devices are added in another order."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory, trainer_block):
    """The same run by four processes and by one; each has one device."""
    found = {}
    for count in (4, 1):
        folder = tmp_path_factory.mktemp(f"processes-{count}")
        with processes.start(
            folder / "logs",
            processes=count,
            devices=1,
            config=trainer_block(steps=STEPS, every_steps=4),
            checkpoint_dir=folder / "checkpoints",
        ) as run:
            assert run.wait() == [0] * count, run.explain()
        found[count] = (folder / "checkpoints", run)
    return found


def data_state(checkpoints, step):
    """The data position in a checkpoint, read without Orbax."""
    state = checkpoints / "steps" / str(step) / "state"
    spec = {"driver": "zarr", "kvstore": {"driver": "ocdbt", "base": f"file://{state}/", "path": "data/"}}
    return np.asarray(tensorstore.open(spec).result().read().result())


def test_losses_are_equal(runs):
    (_, four), (_, one) = runs[4], runs[1]
    assert list(four[0].losses) == list(range(1, STEPS + 1))
    assert four[0].losses == pytest.approx(one[0].losses, abs=LOSS_TOLERANCE, rel=0)


def test_final_losses_are_equal_to_float_tolerance(runs):
    four, one = (attempt_reports.latest(runs[count][0]) for count in (4, 1))
    assert four is not None
    assert one is not None
    assert four["exit_code"] == one["exit_code"] == 0
    # Unrounded float32.
    assert four["loss"] == pytest.approx(one["loss"], rel=1e-5)


def test_batches_are_the_same_tokens(runs):
    four, one = (data_state(runs[count][0], STEPS) for count in (4, 1))
    assert data.batches_digest(four) == data.batches_digest(one)
    np.testing.assert_array_equal(four, one)


def test_every_document_is_read_once(runs, corpus):
    checkpoints, _ = runs[4]
    config = data.DataConfig(path=f"{corpus}/*.parquet")
    manifest = data.read_manifest(str(checkpoints), config)
    assert manifest is not None
    tokenizer = data.load_tokenizer(config)
    plan = data.plan_lanes(manifest, config, batch_size=BATCH_SIZE, seed=0)
    read: collections.Counter[str] = collections.Counter()
    with data.BatchLoader(manifest, tokenizer, plan, SEQUENCE_LENGTH, rows=range(BATCH_SIZE)) as loader:
        for _ in range(STEPS):
            read.update(tokenizer.decode(row) for row in next(loader).inputs.tolist())
        # The run's own hash over the tokens it consumed says that these are its batches.
        assert data.batches_digest(loader.state) == data.batches_digest(data_state(checkpoints, STEPS))
    assert read == collections.Counter(DOCUMENTS)


def test_each_process_reads_its_share(runs):
    _, four = runs[4]
    assert all("lanes=2/8 rows=2/8" in member.log for member in four.members)
    first = {member.log.partition("First rows of this process: ")[2].partition("\n")[0] for member in four.members}
    assert len(first - {""}) == len(four.members)
