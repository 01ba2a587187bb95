"""What `tpujob data inspect` tells, computed by the trainer's own code."""

import gzip
import io
import json
import logging
import re
import tarfile

import pytest
import tokenizers

from tests.trainer.data.data_files import add_member, example, write_tfrecords
from tests.trainer.data.parquet_files import take, write_groups
from tests.trainer.data.text.test_columns import TEMPLATE
from tpujob_trainer.data import DataConfig, batches_digest, make_manifest, plan_lanes
from tpujob_trainer.data.inspection import inspect, is_slow_to_read
from tpujob_trainer.values.errors import ConfigurationError


def inspected(path, **more):
    return inspect(DataConfig(path=str(path)), **{"batch_size": 2, "sequence_length": 16, **more})


def test_size_is_told(tmp_path):
    for number in range(16):
        write_groups(tmp_path / f"{number:02d}.parquet", [["hello world"] * 10, ["another text"] * 5])

    found = inspected(tmp_path)

    assert (found["files"], found["rows"], found["units"], found["lanes"]) == (16, 240, 32, 2)
    assert found["parts"]["count"] == 32
    assert found["sampled"]["rows"] == 240, "a small data set is counted whole"
    # Bytes, and a token before and after each row.
    assert found["tokens"] == 16 * (10 * 13 + 5 * 14)
    assert found["warnings"] == []
    assert json.loads(json.dumps(found)) == found


def test_tokens_of_rows_of_very_different_lengths_are_told_within_a_tenth(tmp_path):
    lengths = [10 ** (1 + (number * 7 % 40) / 10) for number in range(2000)]
    rows = ["x" * int(length) for length in lengths]
    write_groups(tmp_path / "a.parquet", [rows[start : start + 10] for start in range(0, 2000, 10)])

    assert inspected(tmp_path)["tokens"] == pytest.approx(sum(len(row) + 2 for row in rows), rel=0.1)


def test_first_batch_is_that_of_a_run(tmp_path):
    write_groups(tmp_path / "a.parquet", [[f"row-{row} of {group}" for row in range(20)] for group in range(20)])
    config = DataConfig(path=str(tmp_path))
    manifest = make_manifest(config, batch_size=2)
    plan = plan_lanes(manifest, config, batch_size=2, seed=7)
    (batch,) = take(manifest, plan, 1, length=16)

    first = inspected(tmp_path, seed=7)["first_batch"]

    assert [row["tokens"] for row in first["rows"]] == batch.inputs.tolist()
    assert first["digest"] == batches_digest(batch.state)


def test_batch_of_many_passes_is_told_of_and_not_read(tmp_path):
    (tmp_path / "a.txt").write_text("one short text")

    found = inspected(tmp_path, batch_size=20_000, sequence_length=1024)

    assert found["first_batch"] is None
    # The text has 16 tokens: its bytes, and one before and after.
    words = "a batch of 20,000 x 1,024 tokens takes 1,280,000 passes over the 16 tokens of the data"
    assert [line for line in found["warnings"] if line.startswith(words)]
    assert found["batches_in_epoch"] == 0


@pytest.mark.parametrize(
    ("tokens", "units", "tokens_of_batch", "is_slow"),
    [(100, 1, 409_600, False), (100, 1, 409_601, True), (10**9, 8192, 2**20, False), (0, 1, 10**9, False)],
)
def test_batch_is_slow_to_read_from_4096_units(tokens, units, tokens_of_batch, is_slow):
    assert is_slow_to_read(tokens, units, tokens_of_batch) is is_slow


def few_row_groups(folder):
    write_groups(folder / "a.parquet", [[f"{number}: {'text ' * 2000}" for number in range(1000)]])


def useless_rows(folder):
    write_groups(folder / "a.parquet", [["text", None, "", "more"] * 10] * 16)


def zipped(folder):
    lines = "".join(json.dumps({"text": f"row {number}"}) + "\n" for number in range(100))
    for name in "abcdefghijklmnop":
        (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))


def tars(folder):
    for name in "abcdefghijklmnop":
        with tarfile.open(folder / f"{name}.tgz", "w:gz") as tar:
            member = tarfile.TarInfo("0.txt")
            member.size = 100
            tar.addfile(member, io.BytesIO(b"a" * 100))


@pytest.mark.parametrize(
    ("make", "warning"),
    [
        (few_row_groups, "2 lanes want 16 units and there are 1 row groups of up to 10 MB: they are cut"),
        (useless_rows, r"\d+ of \d+ sampled rows cannot be used: \d+ \(\d+\.\d%\) empty; \d+ \(\d+\.\d%\) null"),
        (zipped, "16 files, 'a.jsonl.gz' for one, cannot be read from their middle"),
        (tars, "16 files, 'a.tgz' for one, cannot be read from their middle"),
    ],
    ids=["few row groups", "useless rows", "gzip", "tgz"],
)
def test_what_would_hurt_is_said(tmp_path, make, warning):
    make(tmp_path)

    (line,) = inspected(tmp_path)["warnings"]

    assert re.match(warning, line)


def test_examples_are_rows_of_the_data(tmp_path):
    texts = [[f"row-{row} of {group}" for row in range(3)] for group in range(20)]
    write_groups(tmp_path / "a.parquet", texts)

    examples = inspected(tmp_path)["examples"]

    assert len(examples) == 3
    written = {f"<bos>{text}<eos>" for group in texts for text in group}
    assert {example["text"] for example in examples} <= written
    assert all(example["row"].startswith("a.parquet") for example in examples)


def tar_with_images(folder):
    for number in range(3):
        with tarfile.open(folder / f"{number}.tar", "w") as tar:
            for row in range(20):
                add_member(tar, f"{row:03d}.jpg", b"\xff" * 5000)
                add_member(tar, f"{row:03d}.txt", b"a caption")


def tfrecords(folder):
    write_tfrecords(folder / "a.tfrecord", [example(text="a caption") for _ in range(60)])


@pytest.mark.parametrize("make", [tar_with_images, tfrecords], ids=["images beside texts", "headers of records"])
def test_tokens_are_exact_where_every_row_was_read(tmp_path, make):
    make(tmp_path)

    found = inspected(tmp_path)

    assert (found["tokens"], found["rows"], found["is_exact"]) == (60 * 11, 60, True)


def test_tokens_of_unread_units_scale_with_whole_units(tmp_path):
    for number in range(40):
        with tarfile.open(tmp_path / f"{number:02d}.tar", "w") as tar:
            for row in range(300):
                add_member(tar, f"{row:03d}.jpg", b"\xff" * 2000)
                add_member(tar, f"{row:03d}.txt", b"a caption")

    found = inspected(tmp_path)

    assert not found["is_exact"]
    assert found["rows"] is None
    assert found["tokens"] == pytest.approx(40 * 300 * 11, rel=0.01)


def write_chat_tokenizer(folder):
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    marks = ["<s>", "</s>", "<|user|>", "<|assistant|>"]
    trainer = tokenizers.trainers.BpeTrainer(special_tokens=marks, initial_alphabet=alphabet, show_progress=False)
    model.train_from_iterator(["hello world"], trainer)
    (folder / "tokenizer.json").write_text(model.to_str())
    names = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))


def test_rows_are_shown_as_the_model_gets_them(tmp_path):
    write_chat_tokenizer(tmp_path)
    turns = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "world"}]
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": turns}) + "\n")
    config = DataConfig(
        path=str(tmp_path / "a.jsonl"), tokenizer=str(tmp_path), messages_column="messages", loss_on="assistant"
    )

    found = inspect(config, batch_size=1, sequence_length=16)

    (shown,) = found["examples"]
    assert not found["learns_all"]
    assert "<s>" in shown["text"], "special tokens are visible"
    (learned,) = [span for span in shown["spans"] if span["learned"]]
    assert "world" in learned["text"]
    assert "hello" not in learned["text"]
    (row,) = found["first_batch"]["rows"]
    assert sum(row["loss_mask"]) == found["first_batch"]["learned_tokens"] > 0
    assert len(row["loss_mask"]) == len(row["tokens"]) == 16


def test_all_of_a_text_is_learned(tmp_path):
    (tmp_path / "a.txt").write_text("one line\nanother one")

    found = inspected(tmp_path)

    assert found["learns_all"]
    assert {span["learned"] for each in found["examples"] for span in each["spans"]} == {True}


def test_warnings_are_told_whatever_the_level_of_the_log_and_with_an_error(tmp_path, caplog):
    caplog.set_level(logging.ERROR)
    (tmp_path / "good").mkdir()
    write_groups(tmp_path / "good" / "a.parquet", [["hello world"] * 16])
    (tmp_path / "good" / "b.pdf").write_bytes(b"%PDF-")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number in range(1200):
            add_member(tar, f"report.{number}.txt", b"a text")

    assert any("1 of 2 files are left out: b.pdf" in line for line in inspected(tmp_path / "good")["warnings"])
    with pytest.raises(
        ConfigurationError, match=r"1200 text in a member.*before: .*a.tar: sample 'report' has '0.txt'"
    ):
        inspected(tmp_path / "a.tar")
