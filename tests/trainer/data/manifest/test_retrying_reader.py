"""A file that is away in the middle of a run: read once it is back, given up after a while."""

import pytest

from tests.trainer.data.parquet_files import manifest_of, write_groups
from tpujob_trainer.data.manifest.reader import RetryingReader, UnitReader, _cause_of, _given_up
from tpujob_trainer.storage.read_meter import ReadMeter
from tpujob_trainer.storage.retrying import Retrying, StorageFailedError
from tpujob_trainer.values.errors import NotFoundError, TrainerError

TEXTS = [f"row-{number} of a text" for number in range(200)]


class Time:
    """Passes by waiting alone; something happens at each wait."""

    def __init__(self, then=lambda: None):
        self.now = 0.0
        self._then = then

    def wait(self, seconds):
        self.now += seconds
        self._then()


def patient(manifest, time, meter):
    retrying = Retrying(
        limit_seconds=60,
        cause_of=_cause_of,
        given_up=_given_up,
        clock=lambda: time.now,
        wait=time.wait,
        chance=lambda: 0.0,
        meter=meter,
    )
    return RetryingReader(UnitReader(manifest), 60, retrying)


def cut(path):
    path.write_bytes(path.read_bytes()[:200])


def overwrite_the_middle(path):
    content = bytearray(path.read_bytes())
    content[20 : len(content) // 2] = b"\xff" * (len(content) // 2 - 20)
    path.write_bytes(content)


HARM = {
    "missing": (lambda path: path.unlink(), "missing", "is not there"),
    "cut": (cut, "changed", "its size was"),
    "another one": (lambda path: write_groups(path, [["another", "text"]]), "changed", "has changed since this run"),
    "overwritten": (overwrite_the_middle, "changed", "its content is another one"),
}


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
@pytest.mark.parametrize("is_open", [True, False], ids=["open before", "not open yet"])
def test_file_that_comes_back_is_read(tmp_path, harm, is_open):
    do_harm, cause, _ = harm
    path = write_groups(tmp_path / "a.parquet", [TEXTS])
    content = path.read_bytes()
    meter = ReadMeter()
    reader = patient(manifest_of(tmp_path), Time(then=lambda: path.write_bytes(content)), meter)
    if is_open:
        reader.read(0)
    do_harm(path)

    assert reader.read(0).column.to_pylist() == TEXTS
    assert meter.retries == {cause: 1}


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
def test_file_that_stays_away_is_named(tmp_path, harm):
    do_harm, _, words = harm
    path = write_groups(tmp_path / "a.parquet", [TEXTS])
    time = Time()
    reader = patient(manifest_of(tmp_path), time, ReadMeter())
    do_harm(path)

    with pytest.raises(NotFoundError, match=rf"^spec\.trainer\.data\.path: .*a\.parquet' .*{words}.* kept\)$"):
        reader.read(0)
    assert 30 < time.now <= 60


@pytest.mark.parametrize(
    "error",
    [StorageFailedError("a could not be read (unavailable)"), ConnectionRefusedError(111, "Connection refused")],
    ids=["each request", "at the opening"],
)
def test_storage_that_stays_away_is_worth_another_attempt(tmp_path, monkeypatch, error):
    write_groups(tmp_path / "a.parquet", [TEXTS])
    reader = patient(manifest_of(tmp_path), Time(), ReadMeter())

    def refuse(*_):
        raise error

    monkeypatch.setattr(UnitReader, "read", refuse)
    with pytest.raises(TrainerError, match=r"what was committed is kept, and another attempt may succeed\)$") as found:
        reader.read(0)
    assert type(found.value) is TrainerError
    assert found.value.exit_code == 1
