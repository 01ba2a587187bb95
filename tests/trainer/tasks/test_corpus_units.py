"""How many rows make a unit of a corpus."""

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tpujob_trainer import data
from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.corpus.extract.batch_size import enough_rows
from tpujob_trainer.corpus.extract.config import ExtractConfig
from tpujob_trainer.tasks.batch.corpus_listing import rows_of_units
from tpujob_trainer.tasks.batch.parts import mean_length
from tpujob_trainer.tasks.batch.tasks import BatchTask
from tpujob_trainer.tasks.extraction_estimate import rows_flops

LONGEST, BATCH, ROWS = 256, 8, 40_000


@pytest.fixture
def corpus(tmp_path):
    """Rows of 32 tokens: 31 bytes, and the one that begins a document."""
    pq.write_table(pa.table({"text": ["x" * 31] * ROWS}), tmp_path / "a.parquet")
    config = parse_config(
        {
            "task": "extract",
            "model": {"layers": 2, "embedDim": 16, "heads": 2},
            "data": {"path": f"{tmp_path}/*.parquet", "retrySeconds": 0},
            "sequenceLength": LONGEST,
            "batchSize": BATCH,
            "extract": {"layers": [0]},
        }
    )
    return config, data.make_manifest(config.data)


def _mean(config, manifest):
    tokenizer = data.load_tokenizer(config.data)
    return mean_length(manifest, config=config, tokenizer=tokenizer, vocab_size=512, longest=LONGEST, is_prompt=False)


def test_length_of_rows_is_read(corpus):
    assert _mean(*corpus) == 32


def test_rows_that_cannot_be_read_are_taken_to_be_full(corpus, tmp_path):
    config, manifest = corpus
    (tmp_path / "a.parquet").unlink()
    assert _mean(config, manifest) is None


def test_operations_of_rows_are_those_of_their_tokens():
    assert rows_flops(np.array([3, 5, 3]), lambda length: 100 + length) == 6 * 103 + 5 * 105
    assert rows_flops(np.array([], np.int64), lambda length: length) == 0


@pytest.mark.parametrize(
    ("mean", "token_bytes", "rows"),
    [
        pytest.param(None, 1 << 20, BATCH, id="unknown: a row fills half a file, and a batch is a unit"),
        pytest.param(256.0, 1 << 20, BATCH, id="full rows"),
        pytest.param(32.0, 1 << 20, 8 * BATCH, id="short rows: as many as fill a batch"),
        pytest.param(32.0, 1 << 10, 152, id="what each worker gets, where a file holds more"),
    ],
)
def test_shorter_rows_make_larger_units(corpus, mean, token_bytes, rows):
    assert _rows_of_units(corpus, mean, token_bytes=token_bytes) == rows


def test_rows_that_are_not_packed_do_not(corpus):
    assert _rows_of_units(corpus, 32.0, token_bytes=1 << 20, is_packed=False) == BATCH


def test_unit_fills_a_batch_whose_size_is_chosen_later(corpus):
    config, manifest = corpus
    unsized = dataclasses.replace(config, batch_size=None)
    assert _rows_of_units((unsized, manifest), None, token_bytes=1 << 20) == 32
    # Of 64 tokens a CPU gets 16 rows for each device, of which there are eight here.
    assert _rows_of_units((unsized, manifest), None, token_bytes=1 << 20, length=64) == enough_rows(64) == 128


def _rows_of_units(corpus, mean, *, length=LONGEST, **of_task):
    config, manifest = corpus
    nothing: Any = None
    task = BatchTask(
        name="extract", units=ExtractConfig(layers=(0,)), described={}, row_bytes=0, make=nothing, **of_task
    )
    return rows_of_units(manifest, config, task, workers=1, length=length, mean_length=lambda _: mean)
