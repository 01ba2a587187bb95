"""Several engines in threads over one directory; what they compute is a file with the unit's number."""

import dataclasses
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tpujob_trainer.corpus.workers import results
from tpujob_trainer.corpus.workers.claims import Claims
from tpujob_trainer.corpus.workers.engine import Engine
from tpujob_trainer.corpus.workers.failures import ScratchFullError
from tpujob_trainer.corpus.workers.progress_index import ProgressIndex
from tpujob_trainer.corpus.workers.uploads import Scratch, Uploads
from tpujob_trainer.corpus.workers.work import Packed, PackedFile
from tpujob_trainer.storage import open_bucket

UNITS = 40


class Numbers:
    """The number of the unit, as text."""

    def __init__(self):
        self.reads = []

    def read(self, unit):
        self.reads.append(unit)
        return unit

    def compute(self, read):
        return read

    def size(self, computed):
        return 10

    def pack(self, computed, folder, name):
        file = folder / f"{name}.txt"
        file.write_text(str(computed))
        return Packed([PackedFile(file, 1)], tokens=1, skipped={}, checksum=f"{computed:032x}")


@pytest.fixture
def engine(tmp_path):
    """A function that makes a worker of one directory."""
    opened = []

    def make(worker, *, stop=lambda: False, units=UNITS, lapse_seconds=2.0):
        directory = str(tmp_path / "out")
        objects = open_bucket(directory)
        claims = Claims(objects, worker, renew_seconds=lapse_seconds / 4, lapse_seconds=lapse_seconds)
        scratch = Scratch(str(tmp_path / f"scratch-{worker}"), 1000, field="spec.trainer.extract.scratch")
        opened.append(scratch)
        return Engine(
            objects,
            claims,
            ProgressIndex(objects, worker, units),
            Uploads(directory),
            scratch,
            worker=worker,
            units=units,
            stop_requested=stop,
        )

    yield make
    for scratch in opened:
        scratch.close()


def _results(tmp_path):
    found = {}
    for file in sorted((tmp_path / "out" / "done").glob("*.json")):
        result = results.parse(file.read_bytes(), "done")
        assert result.unit not in found
        found[result.unit] = [(tmp_path / "out" / each.name).read_text() for each in result.files]
    return found


def test_first_values_that_are_not_finite_are_logged(engine, caplog):
    class Infinite(Numbers):
        def pack(self, computed, folder, name):
            return dataclasses.replace(super().pack(computed, folder, name), statistics={"x": [9, 0, 0, 0, 0, 4]})

    worker = engine("job-0-a")
    worker.run(Infinite())
    assert worker.counters.not_finite == 4 * UNITS
    assert caplog.text.count(": 4 values are not finite, and perhaps some of later units") == 1


def test_one_worker_does_everything(engine, tmp_path):
    work = Numbers()
    assert engine("a").run(work)
    assert _results(tmp_path) == {unit: [str(unit)] for unit in range(UNITS)}
    assert sorted(work.reads) == list(range(UNITS))
    assert not list((tmp_path / "out" / "claims").iterdir())


def test_workers_share_the_units(engine, tmp_path):
    works = [Numbers() for _ in range(4)]
    engines = [engine(f"worker-{number}") for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda pair: pair[0].run(pair[1]), zip(engines, works, strict=True)))
    assert _results(tmp_path) == {unit: [str(unit)] for unit in range(UNITS)}
    assert sorted(unit for work in works for unit in work.reads) == list(range(UNITS)), "a unit was read twice"
    assert len(list((tmp_path / "out" / "out").iterdir())) == UNITS


def test_result_that_is_gone_is_made_again_though_the_index_has_it(engine, tmp_path, caplog):
    """The index of the run before says that every unit is done."""
    engine("a").run(Numbers())
    for unit in (3, 17):
        next((tmp_path / "out" / "done").glob(f"*{unit:02}.json")).unlink()

    work, again = Numbers(), engine("b")

    assert again.run(work)
    assert sorted(work.reads) == [3, 17]
    assert again.counters.gone == 2
    assert "Units computed again, since their results in done/ are gone: 3, 17" in caplog.text
    assert _results(tmp_path) == {unit: [str(unit)] for unit in range(UNITS)}
    assert json.loads((tmp_path / "out" / "board.json").read_text())["by"] == "b"


def test_result_that_goes_while_another_unit_is_computed_is_made_again(engine, tmp_path):
    class Loses(Numbers):
        def compute(self, read):
            if len(self.reads) == 30:
                (tmp_path / "out" / "done" / f"{self.reads[0]:08}.json").unlink()
            return read

    assert engine("a").run(Loses())
    assert _results(tmp_path) == {unit: [str(unit)] for unit in range(UNITS)}


def test_stopped_worker_leaves_no_claim(engine, tmp_path):
    asked = threading.Event()

    class Stops(Numbers):
        def compute(self, read):
            if len(self.reads) > 5:
                asked.set()
            return read

    assert not engine("a", stop=asked.is_set).run(Stops())
    assert not list((tmp_path / "out" / "claims").iterdir())
    assert engine("b").run(Numbers())
    assert _results(tmp_path) == {unit: [str(unit)] for unit in range(UNITS)}


@pytest.mark.parametrize("where", ["read", "compute", "pack"])
def test_failure_ends_worker_and_is_told(engine, tmp_path, where):
    class Fails(Numbers):
        pass

    def fail(*_):
        raise RuntimeError("broken on purpose")

    setattr(Fails, where, fail)
    with pytest.raises(RuntimeError, match="on purpose"):
        engine("a").run(Fails())
    (told,) = [json.loads(file.read_text()) for file in (tmp_path / "out" / "failures").rglob("*.json")]
    assert (told["cause"], told["worker"]) == ("RuntimeError", "a")
    assert not list((tmp_path / "out" / "claims").iterdir())
    assert engine("b").run(Numbers())
    assert _results(tmp_path) == {unit: [str(unit)] for unit in range(UNITS)}


def test_frozen_worker_loses_only_its_own_unit(engine, tmp_path):
    """It is away until another one has finished its unit, and comes too late then."""
    away, back = threading.Event(), threading.Event()

    class Freezes(Numbers):
        def compute(self, read):
            if not away.is_set():
                away.set()
                back.wait(300)
            return read

    first = engine("a", lapse_seconds=1.0)
    first._claims._closed.set()  # as if its threads were frozen too: it renews nothing
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(first.run, Freezes())
        assert away.wait(300)
        assert engine("b", lapse_seconds=1.0).run(Numbers())
        back.set()
        assert ending.result(60)
    assert _results(tmp_path) == {unit: [str(unit)] for unit in range(UNITS)}
    assert first.counters.lost >= 1
    assert len(list((tmp_path / "out" / "out").iterdir())) == UNITS, "files of the late one were left"
    taken_over = [json.loads(f.read_text()) for f in (tmp_path / "out" / "done").iterdir()]
    assert any(result["taken_over_from"] == "a" for result in taken_over)


def test_worker_that_waits_for_others_says_so(engine, tmp_path):
    claims = Claims(open_bucket(str(tmp_path / "out")), "other")
    assert claims.take(0) is not None
    worker = engine("a", units=2, lapse_seconds=60.0)
    worker._on_idle = claims.close
    assert worker.run(Numbers())
    assert sorted(_results(tmp_path)) == [0, 1]


def test_full_output_disk_is_not_called_scratch(engine):
    class FullOutput(Uploads):
        def upload(self, *_):
            raise OSError(28, "No space left on device")

    worker = engine("a")
    worker._finisher._uploads.__class__ = FullOutput
    with pytest.raises(OSError, match="No space left") as raised:
        worker.run(Numbers())
    assert not isinstance(raised.value, ScratchFullError)


def test_scratch_without_room_is_refused(tmp_path):
    with pytest.raises(ScratchFullError, match=r"spec\.trainer\.extract\.scratch: .* scratchBytes asks for"):
        Scratch(str(tmp_path), 1 << 60, field="spec.trainer.extract.scratch")


def test_scratch_is_bounded(tmp_path):
    scratch = Scratch(str(tmp_path), 100, field="spec.trainer.extract.scratch")
    with ThreadPoolExecutor(8) as pool:

        def use(number):
            with scratch.writing():
                pass

        list(pool.map(use, range(64)))
    assert scratch.most_bytes <= 100


def test_full_disk_is_one_line(tmp_path):
    scratch = Scratch(str(tmp_path), 100, field="spec.trainer.extract.scratch")
    with pytest.raises(ScratchFullError, match="is full"), scratch.writing():
        raise OSError(28, "No space left on device")
