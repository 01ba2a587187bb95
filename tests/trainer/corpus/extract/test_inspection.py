"""The program behind `tpujob extract`, on a directory that an engine filled."""

import functools
import io
import json
import re

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

from tpujob_trainer.corpus.extract import inspection
from tpujob_trainer.corpus.extract.description import TASK
from tpujob_trainer.corpus.extract.shards import UnitTable, write_shards
from tpujob_trainer.corpus.extract.units import cut
from tpujob_trainer.corpus.workers import claims, results
from tpujob_trainer.corpus.workers.claims import Claims
from tpujob_trainer.corpus.workers.engine import Engine
from tpujob_trainer.corpus.workers.progress_index import ProgressIndex
from tpujob_trainer.corpus.workers.uploads import Scratch, Uploads
from tpujob_trainer.corpus.workers.work import Packed
from tpujob_trainer.data import DataConfig, make_manifest, write_manifest
from tpujob_trainer.storage import open_bucket
from tpujob_trainer.storage.directory import Directory

UNITS, ROWS = 6, 8


class Values:
    """A row's values are its number."""

    def __init__(self):
        self.units = []

    def read(self, unit):
        self.units.append(unit)
        return unit

    def compute(self, read):
        return read

    def size(self, computed):
        return 100

    def pack(self, computed, folder, name):
        samples = np.arange(ROWS) + computed * ROWS
        values = np.repeat(samples[:, None], 4, axis=1).astype(np.float32)
        ones = np.ones(ROWS, dtype=np.int64)
        table = UnitTable(
            computed,
            samples,
            np.arange(ROWS, dtype=np.int32),
            samples.astype(np.int32),
            ones,
            {"norm": values},
            per_token=frozenset(),
        )
        files = write_shards(table, folder, name, file_format="parquet", compression="zstd", shard_bytes=1 << 20)
        sums = [values.size, values.sum(), (values**2).sum(), values.min(), values.max(), 0]
        return Packed(files, ROWS, {}, table.checksum(), {"norm": np.array(sums, dtype=np.float64).tolist()})


@pytest.fixture
def directory(tmp_path):
    where = tmp_path / "out"
    pq.write_table(pa.table({"text": ["x"] * UNITS * ROWS}), tmp_path / "text.parquet")
    manifest = cut(make_manifest(DataConfig(path=f"{tmp_path}/*.parquet")), ROWS, None, field="spec.trainer.extract")
    write_manifest(manifest, str(where))
    bucket = open_bucket(where)
    described = {"units": UNITS, "rows": UNITS * ROWS, TASK: "extract", "spec.trainer.extract.dtype": "float32"}
    bucket.create("extract.json", json.dumps(described))
    assert _run(where) == list(range(UNITS))
    return where


def _run(where):
    """Runs a worker in a directory; returns the units that it made."""
    bucket, work = open_bucket(where), Values()
    scratch = Scratch(str(where.parent / "scratch"), 1000, field="spec.trainer.extract.scratch")
    once = functools.partial(claims.once, bucket, "job-0-aa")
    engine = Engine(
        bucket,
        Claims(bucket, "job-0-aa"),
        ProgressIndex(bucket, "job-0-aa", UNITS),
        Uploads(str(where)),
        scratch,
        worker="job-0-aa",
        units=UNITS,
        stop_requested=lambda: False,
        withdraw_damaged=lambda: inspection.Inspection(str(where)).withdraw_damaged(once),
    )
    assert engine.run(work)
    return sorted(work.units)


def _ask(verb, directory, *options):
    out = io.StringIO()
    code = inspection.main([verb, str(directory), *options], out)
    return code, json.loads(out.getvalue()) if out.getvalue() else {}


def test_whole_result_has_no_problem(directory):
    assert _ask("verify", directory)[0] == 0
    code, found = _ask("verify", directory, "--read-all")
    assert (code, found["problems"], found["rows"]) == (0, [], UNITS * ROWS)
    first = directory / "done" / "00000000.json"
    first.write_text(re.sub(r"0(\.0)?\]", "3]", first.read_text()))
    assert _ask("verify", directory)[1]["not_finite"] == 3


def _damage(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(lambda file, done: file.unlink(), "is gone", id="a file is gone"),
        pytest.param(lambda file, done: file.write_bytes(b"short"), "has 5 bytes", id="a file was cut"),
        pytest.param(lambda file, done: _damage(file), "its CRC32C is", id="a bit was flipped"),
        pytest.param(lambda file, done: done.unlink(), "1 of 6 units are not done: 0", id="a unit is missing"),
        pytest.param(
            lambda file, done: done.write_text(done.read_text().replace('"rows": 8', '"rows": 7')),
            "unit 0: 7 rows and 0 that were left out, but the corpus has 8 there",
            id="rows were lost",
        ),
    ],
)
def test_damage_is_named_and_not_merged(directory, damage, message, capsys):
    done = directory / "done" / "00000000.json"
    damage(directory / json.loads(done.read_text())["files"][0]["name"], done)
    code, found = _ask("verify", directory)
    assert code == 1
    assert message in found["problems"][0]
    assert _ask("merge", directory)[0] == 1
    assert "1 problems, the first: " in capsys.readouterr().err
    assert not (directory / "README.md").exists()


def _result(directory, unit):
    return json.loads((directory / results.name_of(unit)).read_text())


def _file(directory, unit):
    return directory / _result(directory, unit)["files"][0]["name"]


def _contents(directory):
    return [_file(directory, unit).read_bytes() for unit in range(UNITS)]


def test_damaged_units_are_given_back_and_made_again(directory):
    assert _ask("merge", directory)[0] == 0
    before, statistics = _contents(directory), (directory / "statistics.json").read_bytes()
    _file(directory, 0).write_bytes(b"short")
    _damage(_file(directory, 2))
    _file(directory, 3).unlink()
    (directory / "done" / "00000005.json").write_text('{"unit": 5')

    code, found = _ask("verify", directory, "--repair")
    assert (code, found["given_back"], len(found["problems"])) == (1, [0, 2, 3, 5], 5)
    assert _run(directory) == [0, 2, 3, 5]
    assert _ask("verify", directory, "--read-all")[0] == 0
    assert _ask("merge", directory)[0] == 0
    assert (_contents(directory), (directory / "statistics.json").read_bytes()) == (before, statistics)


def test_run_makes_units_again_whose_files_a_listing_shows_to_be_damaged(directory, caplog):
    before = _contents(directory)
    _file(directory, 1).write_bytes(b"short")
    _file(directory, 4).unlink()
    assert _run(directory) == [1, 4]
    assert "Unit 1 is to be made again: out/" in caplog.text
    assert "has 5 bytes, it should have" in caplog.text
    assert _contents(directory) == before
    assert _ask("verify", directory)[0] == 0


def test_results_are_read_once_for_the_same_files(directory, monkeypatch):

    def fail(*_):
        raise AssertionError("read again")

    monkeypatch.setattr(Directory, "read_many", fail)
    assert _run(directory) == []


def test_files_of_others_are_left_alone(directory):
    before = _ask("status", directory)[1]
    for name in ("done/README.md", "done/00000099.json", "claims/x", "failures/other/x.json"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("{}")
    assert _run(directory) == []
    assert _ask("status", directory)[1]["done"] == before["done"] == UNITS
    assert _ask("verify", directory, "--repair")[1]["problems"] == []


def test_result_of_another_unit_is_damage(directory):
    (directory / results.name_of(2)).write_bytes((directory / results.name_of(3)).read_bytes())
    assert "00000002.json is damaged (unit 3)" in _ask("verify", directory, "--repair")[1]["problems"][0]
    assert _run(directory) == [2]


def test_result_that_was_replaced_meanwhile_is_kept(directory):
    """A worker has made the unit again after the damage was seen."""
    seen = inspection.Inspection(str(directory))
    _file(directory, 0).unlink()
    problems = seen._checked(seen._results())[0]
    done = directory / results.name_of(0)
    done.write_text(json.dumps({**_result(directory, 0), "token": "0000dead"}))
    assert seen._withdraw(problems) == []
    assert _result(directory, 0)["token"] == "0000dead"


def test_short_answer_about_a_file_is_asked_again(directory, monkeypatch):
    """A broken cache answers with a part of each file at first: that says nothing about the file."""
    whole, seen = LocalFileSystem.cat_file, set()

    def cut_at_first(self, path, *at):
        is_first = path not in seen
        seen.add(path)
        return whole(self, path, *at)[: 10 if is_first else None]

    monkeypatch.setattr(LocalFileSystem, "cat_file", cut_at_first)
    assert _ask("verify", directory)[0] == 0
    assert len(seen) == 1 + 2 * UNITS


def test_merged_result_is_a_data_set(directory, tmp_path):
    stray = directory / "out" / "00000003-dead0000-000.parquet"
    stray.write_bytes(b"left by a dead worker")
    code, found = _ask("merge", directory)
    assert (code, found["leftover_files"]) == (0, 1)
    loaded = datasets.load_dataset(str(directory), split="train", cache_dir=str(tmp_path / "cache"))
    assert sorted(loaded["sample"]) == list(range(UNITS * ROWS))
    assert all(row["norm"] == [row["sample"]] * 4 for row in loaded)
    index = pq.read_table(directory / "index.parquet").to_pydict()
    assert index["unit"] == list(range(UNITS))
    of_column = json.loads((directory / "statistics.json").read_text())["columns"]["norm"]
    numbers = np.arange(UNITS * ROWS)
    assert of_column["count"] == UNITS * ROWS * 4
    assert of_column["mean"] == pytest.approx(numbers.mean())
    assert of_column["std"] == pytest.approx(numbers.std())


def test_part_of_a_result_is_merged_when_asked(directory, tmp_path, capsys):
    (directory / "done" / "00000002.json").unlink()
    assert _ask("merge", directory)[0] == 1
    code, found = _ask("merge", directory, "--partial")
    assert (code, found["units"], found["of_units"]) == (0, UNITS - 1, UNITS)
    assert "**Only 5 of 6 units** were done" in (directory / "README.md").read_text()
    loaded = datasets.load_dataset(str(directory), split="train", cache_dir=str(tmp_path / "cache"))
    assert sorted(loaded["sample"]) == [n for n in range(UNITS * ROWS) if n // ROWS != 2]
    capsys.readouterr()
    assert _ask("merge", directory, "--partial", "--remove-leftovers")[0] == 1
    assert "files of a unit that is not done yet may be on their way" in capsys.readouterr().err


def test_unit_that_is_done_while_others_are_verified_waits_for_the_next_merge(directory, monkeypatch):
    done = directory / "done" / "00000002.json"
    content = done.read_bytes()
    done.unlink()
    looked_at = inspection.Inspection(str(directory))
    list_files = looked_at.directory.files

    def worker_finishes(folder):
        if folder == results.OUTPUTS:
            done.write_bytes(content)
        return list_files(folder)

    monkeypatch.setattr(looked_at.directory, "files", worker_finishes)
    found = looked_at.merge(remove_leftovers=False, partial=True)
    assert found["units"] == UNITS - 1
    assert 2 not in pq.read_table(directory / "index.parquet").to_pydict()["unit"]


def test_part_of_nothing_is_not_merged(directory, capsys):
    for done in (directory / "done").iterdir():
        done.unlink()
    assert _ask("merge", directory, "--partial")[0] == 1
    assert "no unit is done yet; wait for the first" in capsys.readouterr().err


def test_leftovers_go_when_asked(directory):
    stray = directory / "out" / "00000003-dead0000-000.parquet"
    stray.write_bytes(b"left by a dead worker")
    assert _ask("merge", directory, "--remove-leftovers")[0] == 0
    assert not stray.exists()
    assert _ask("verify", directory)[0] == 0


def test_unit_that_is_being_written_is_not_read(directory):
    lock = directory / "done" / "00000007.json.__lock"
    lock.touch()
    lock.chmod(0)
    code, found = _ask("status", directory)
    assert (code, found["done"]) == (0, UNITS)


def test_other_directory_is_refused(tmp_path, capsys):
    assert _ask("status", tmp_path)[0] == 77
    assert "no extraction has begun there" in capsys.readouterr().err


def test_status_ends_when_all_is_done(directory):
    code, found = _ask("status", directory, "--every", "100")
    assert (code, found["done"], found["seconds_left"]) == (0, UNITS, 0.0)
