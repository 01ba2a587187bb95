"""The rows of a unit come in another order in each pass over the data."""

from tests.trainer.data.parquet_files import manifest_of, write_numbered
from tests.trainer.data.stream.test_passes import raw, until_the_end
from tpujob_trainer.data.manifest.plan import LanePlan


def test_each_pass_has_its_own_order_of_rows(tmp_path):
    write_numbered(tmp_path, [[64]], width=8)
    manifest = manifest_of(tmp_path, batch_size=None)
    batches = until_the_end(manifest, LanePlan(manifest.num_units, 1, 1, 3, 2), 32)
    tokens = b"".join(batch.inputs.tobytes() for batch in batches)
    half = len(tokens) // 2
    assert manifest.num_units == 1
    assert sorted(tokens[:half]) != tokens[:half]
    assert tokens[:half] != tokens[half : 2 * half]
    assert raw(batches)
