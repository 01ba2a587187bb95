import numpy as np

from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.train.batches import Assembler, rows_here


def test_one_process_holds_every_row() -> None:
    np.testing.assert_array_equal(rows_here(build_mesh(slices=2), 24), np.arange(24))


def test_rows_arrive_where_they_belong() -> None:
    local = np.arange(16 * 3).reshape(16, 3)
    assembled = Assembler(build_mesh(slices=1), 16, 16).array(local)
    np.testing.assert_array_equal(assembled, local)
    assert {shard.data.shape for shard in assembled.addressable_shards} == {(2, 3)}


def test_the_array_keeps_its_numbers_when_the_source_changes() -> None:
    local = np.ones((8, 2), np.int32)
    assembled = Assembler(build_mesh(slices=1), 8, 8).array(local)
    local[:] = 7
    np.testing.assert_array_equal(assembled, 1)
