"""Raw samples: the same batches by any number of processes, and on from any position."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from tpujob_trainer import data
from tpujob_trainer.data.stream.position import describe_data, identity_of
from tpujob_trainer.data.stream.samples import SampleLoader
from tpujob_trainer.values.errors import ConfigurationError
from tpujob_trainer.values.from_mapping import parse

BATCH = 8
TARS, PER_TAR = 5, 7


def write_tar(path: Path, samples: dict[str, dict[str, bytes]]) -> None:
    with tarfile.open(path, "w") as tar:
        for key, fields in samples.items():
            for name, content in fields.items():
                info = tarfile.TarInfo(f"{key}.{name}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


@pytest.fixture
def tars(tmp_path: Path) -> Path:
    """Images as bytes that no text is, and a label; the tars hold another number of samples each."""
    for tar in range(TARS):
        samples = {
            f"train/{tar}-{number}": {"jpg": bytes([0xFF, 0xD8, tar, number]), "CLS": b"%d" % number}
            for number in range(PER_TAR + tar)
        }
        write_tar(tmp_path / f"{tar}.tar", samples)
    return tmp_path


class Reading:
    """What all processes of a run share."""

    def __init__(self, folder: Path, seed: int = 3, batch_size: int = BATCH) -> None:
        self.batch_size = batch_size
        config = parse(data.DataConfig, {"path": f"{folder}/*.tar", "tokenizer": "bytes"}, "data")
        self.manifest = data.make_manifest(config, batch_size=batch_size)
        self.plan = data.plan_lanes(self.manifest, config, batch_size=batch_size, seed=seed)
        tokenizer = data.load_tokenizer(config)
        self.identity = identity_of(describe_data(self.manifest, tokenizer, self.plan, 0))

    def batches(
        self, count: int, *, processes: int = 1, state: np.ndarray | None = None
    ) -> tuple[list[list[str]], np.ndarray]:
        """Keys of global batches, put together from those of all processes, and the position of all lanes."""
        per = self.batch_size // processes
        loaders = [
            SampleLoader(self.manifest, self.plan, self.identity, rows=range(first, first + per), state=state)
            for first in range(0, self.batch_size, per)
        ]
        try:
            found = [[sample.key for loader in loaders for sample in next(loader)] for _ in range(count)]
            of_lanes = {
                lane: row
                for first, loader in zip(range(0, self.batch_size, per), loaders, strict=True)
                for lane, row in zip(self.plan.lanes_of(range(first, first + per)), loader.state, strict=True)
            }
            return found, np.array([of_lanes[lane] for lane in range(self.plan.lanes)])
        finally:
            for loader in loaders:
                loader.close()


@pytest.mark.parametrize("processes", [2, 4, 8])
def test_batches_are_the_same_for_any_number_of_processes(tars: Path, processes: int) -> None:
    reading = Reading(tars)
    expected, position = reading.batches(12)
    found, after = reading.batches(12, processes=processes)
    assert found == expected
    np.testing.assert_array_equal(after, position)


@pytest.mark.parametrize("taken", range(13))
def test_any_position_goes_on_with_another_number_of_processes(tars: Path, taken: int) -> None:
    reading = Reading(tars)
    expected, end = reading.batches(13)
    before, position = reading.batches(taken, processes=2)
    after, last = reading.batches(13 - taken, processes=4, state=position if taken else None)
    assert before + after == expected
    np.testing.assert_array_equal(last, end)


def test_each_sample_comes_once_in_a_pass_and_then_in_another_order(tars: Path) -> None:
    found, _ = Reading(tars, batch_size=1).batches(90)
    first, second = found[:45], found[45:]
    keys = {f"train/{tar}-{number}" for tar in range(TARS) for number in range(PER_TAR + tar)}
    assert {key for (key,) in first} == {key for (key,) in second} == keys
    assert len(keys) == 45
    assert first != second


def test_fields_are_the_bytes_of_the_tar(tars: Path) -> None:
    reading = Reading(tars)
    loader = SampleLoader(reading.manifest, reading.plan, reading.identity, rows=range(BATCH))
    try:
        samples = next(loader)
    finally:
        loader.close()
    for sample in samples:
        tar, number = map(int, sample.key.removeprefix("train/").split("-"))
        assert sample.fields == {"jpg": bytes([0xFF, 0xD8, tar, number]), "cls": b"%d" % number}


def test_other_content_has_another_digest(tars: Path) -> None:
    _, before = Reading(tars).batches(6)
    write_tar(tars / "2.tar", {f"train/2-{n}": {"jpg": bytes([0, 0, 2, n]), "CLS": b"%d" % n} for n in range(9)})
    _, after = Reading(tars).batches(6)
    assert data.batches_digest(before) != data.batches_digest(after)


def test_tars_without_samples_are_refused(tmp_path: Path) -> None:
    for tar in range(2):
        write_tar(tmp_path / f"{tar}.tar", {})
    with pytest.raises(ConfigurationError, match=r"^data\.path: \d tars, one after the other, hold no sample"):
        Reading(tmp_path).batches(1)


def test_position_of_another_seed_is_refused(tars: Path) -> None:
    _, position = Reading(tars).batches(2)
    with pytest.raises(ConfigurationError, match="belongs to other data"):
        Reading(tars, seed=4).batches(1, state=position)
