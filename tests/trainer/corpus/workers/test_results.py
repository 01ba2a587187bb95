"""The result of a unit, read from a file that something else may have changed."""

import json
from typing import Any

import pytest

from tpujob_trainer.corpus.workers import results
from tpujob_trainer.corpus.workers.results import OutputFile, UnitResult
from tpujob_trainer.values.errors import ConfigurationError

FILE = OutputFile(name="out/00000007-t-000.parquet", rows=3, bytes=100, crc32c="00000000")
RESULT = UnitResult(
    unit=7, rows=3, skipped={}, tokens=9, files=(FILE,), checksum="0", statistics={}, worker="w", token="t", seconds=1.0
)


def changed(**values: Any) -> bytes:
    return json.dumps({**json.loads(RESULT.to_json()), **values}).encode()


def test_what_was_written_is_read_and_later_keys_are_left_out() -> None:
    assert results.parse(changed(later=1), "gs://b/done/7.json") == RESULT


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (RESULT.to_json()[:50], "Expecting"),
        (changed(rows="3"), "'3'"),
        (changed(rows=-1), "-1"),
        (changed(rows=True), "True"),
        (changed(worker=None), "None"),
        (changed(statistics=[]), r"\[\]"),
        (changed(seconds="1"), "'1'"),
        (changed(statistics={"norm": 3}), "'norm': 3|3"),
        (changed(statistics={"norm": [1, 2, 3, 4, 5, float("nan")]}), "nan"),
        (changed(skipped={"empty": "1"}), "'1'"),
        (changed(rows=1 << 64), "18446744073709551616"),
        (changed(chips="4"), "'4'"),
        (changed(files=None), "its files are not said"),
        (changed(files=["a"]), "a file is a"),
        (changed(files=[{"name": "out/a"}]), "missing 3 required"),
        (changed(files=[{**vars(FILE), "name": "../../etc/passwd"}]), "etc/passwd"),
        (changed(files=[{**vars(FILE), "name": "out/../../a"}]), r"out/\.\./\.\./a"),
    ],
    ids=[
        "cut", "text for a number", "below zero", "true", "nothing", "a list", "text for seconds",
        "a number for sums", "a count that is none", "text for a count", "too many for Arrow", "text for chips",
        "no files",
        "no file", "half a file", "path elsewhere", "path that leads out",
    ],
)  # fmt: skip
def test_what_is_not_a_result_is_named(content: bytes, said: str) -> None:
    where = r"spec\.checkpointDir: gs://b/done/7\.json"
    with pytest.raises(ConfigurationError, match=rf"^{where} is damaged \(.*{said}.*\); delete it, and the job makes"):
        results.parse(content, "gs://b/done/7.json")
