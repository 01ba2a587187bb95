"""The rows of a unit come in another order in each pass over the data."""

import re

import numpy as np

from tests.trainer.data.parquet_files import BYTES, manifest_of, write_numbered
from tests.trainer.data.stream.test_passes import until_the_end
from tpujob_trainer.data.manifest.plan import LanePlan


def test_each_pass_has_its_own_order_of_rows(tmp_path):
    write_numbered(tmp_path, [[64]], width=8)
    manifest = manifest_of(tmp_path, batch_size=None)
    assert manifest.num_units == 1, "else the order of units differs, too"
    batches = until_the_end(manifest, LanePlan(manifest.num_units, 1, 1, 3, 2), 32)
    text = BYTES.decode(np.concatenate([batch.targets.reshape(-1) for batch in batches]).tolist())
    order = [int(row) for row in re.findall(r"row-(\d+);", text)]
    first, second = order[:64], order[64:128]
    assert sorted(first) == sorted(second) == list(range(64))
    assert first != second
    assert first != sorted(first)
