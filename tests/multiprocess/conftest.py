"""The text and the configuration that all runs here share."""

import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

SEQUENCE_LENGTH = 32
BATCH_SIZE = 8
DOCUMENTS = tuple(f"{number:03d} is one document of thirty." for number in range(64))
"""Thirty bytes each: with a token before and after, one document fills one row, and eight batches are one epoch."""


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("corpus")
    pq.write_table(pa.table({"text": DOCUMENTS}), folder / "text.parquet", row_group_size=4)
    return folder


@pytest.fixture(scope="session")
def trainer_block(corpus):
    """A function that makes the `trainer` block of a tiny model."""

    def block(*, steps, every_steps, **more):
        return {
            "model": {"layers": 2, "embedDim": 32, "heads": 2},
            "data": {"path": f"{corpus}/*.parquet"},
            "steps": steps,
            "sequenceLength": SEQUENCE_LENGTH,
            "batchSize": BATCH_SIZE,
            "checkpoint": {"everySteps": every_steps, "keep": 50},
            "logEverySteps": 1,
            "heartbeatSeconds": 30,
            "watchdog": {"stepSeconds": 120},  # a run that hangs says where, before the test gives up on it
            **more,
        }

    return block
