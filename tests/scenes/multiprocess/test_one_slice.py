"""Of two slices, one reads the checkpoint from the bucket; the other gets the same bits from its devices."""

import json
import re

import pytest

from tests.harness import processes
from tests.multiprocess.storage_proxy import StorageProxy

pytestmark = pytest.mark.processes

TWO_SLICES, ONE_SLICE = (2, (2, 2, 2)), (1, (1, 4, 2))
"""Processes, and the form of their mesh of eight devices: slices first."""


@pytest.fixture
def run(bucket, tmp_path_factory):
    """A function that saves or restores; the fingerprints of each process, and the bytes of arrays that it has read."""

    def run(where, slices, *, save):
        count, mesh = slices
        proxy = StorageProxy(bucket, count)
        try:
            with processes.start(
                tmp_path_factory.mktemp("run"),
                processes=count,
                devices=8 // count,
                config={"mesh": mesh, "save": save},
                checkpoint_dir=f"gs://{bucket.name}/{where}",
                program=("-m", "tests.multiprocess.moving_run"),
                extra_of=lambda index: {
                    **proxy.environment(index),
                    "TPUJOB_SLICES": str(count),
                    "TPUJOB_SLICE": str(index),
                    "TPUJOB_HOST": "0",
                    "TPUJOB_HOSTS_PER_SLICE": "1",
                },
            ) as found:
                codes = found.wait()
            assert codes == [0] * count, found.explain()
            bytes_read = [
                sum(size for request, size in proxy.read if request.process == index and "/state/" in request.name)
                for index in range(count)
            ]
        finally:
            proxy.close()
        prints = [json.loads(re.findall(r"fingerprints (\{.*\})", member.log)[0]) for member in found.members]
        assert prints == [prints[0]] * count
        return prints[0], bytes_read

    return run


def test_one_slice_reads_for_both_and_any_number_of_slices_restores(run, bucket):
    saved, _ = run("two", TWO_SLICES, save=True)
    by_two, read_by_two = run("two", TWO_SLICES, save=False)
    by_one, read_by_one = run("two", ONE_SLICE, save=False)
    assert by_two == by_one == saved
    assert read_by_two[1] == 0
    # What one process with all devices reads is the whole state once. Metadata, a good part of this small state, is
    # asked for again at times; two slices that both read would have read twice as much.
    assert 0 < read_by_two[0] < 1.5 * read_by_one[0]

    saved, _ = run("one", ONE_SLICE, save=True)
    by_two, read_by_two = run("one", TWO_SLICES, save=False)
    assert by_two == saved
    assert read_by_two[1] == 0
