"""Readers of data: files of all formats, the list of data, tokenizers."""

import functools
import json
from pathlib import Path

import numpy as np
import tokenizers

from tests.fuzz.target import Target
from tests.trainer.data.data_files import WRITERS
from tpujob_trainer.data import DataConfig, load_tokenizer, make_manifest
from tpujob_trainer.data.manifest.reader import UnitReader
from tpujob_trainer.data.manifest.table import FILE_NAME, read_manifest, write_manifest
from tpujob_trainer.data.text import columns
from tpujob_trainer.values.errors import TrainerError

TEXTS = [f"row {number} is one of several" for number in range(20)]
MAX_UNPACKED_BYTES = 64 << 20


def _write(name: str, folder: Path) -> Path:
    WRITERS[name](folder / name, TEXTS)
    return folder / name


def _read_rows(folder: Path) -> None:
    config = DataConfig(path=f"{folder}/*", max_unpacked_bytes=MAX_UNPACKED_BYTES)
    manifest = make_manifest(config)
    reader = UnitReader(manifest)
    for unit in range(manifest.num_units):
        rows = reader.read(unit)
        columns.texts(rows.column, np.arange(len(rows.column)))


def _list_data(folder: Path) -> Path:
    data = folder / "data"
    data.mkdir()
    WRITERS["a.jsonl"](data / "a.jsonl", TEXTS)
    write_manifest(make_manifest(DataConfig(path=f"{data}/a.jsonl")), str(folder))
    return folder / FILE_NAME


def _read_list(folder: Path) -> None:
    config = DataConfig(path=f"{folder}/data/a.jsonl")
    found = read_manifest(str(folder), config)
    if found is not None:
        reader = UnitReader(found)
        for unit in range(min(found.num_units, 10)):
            reader.read(unit)


def _tokenizer(folder: Path) -> Path:
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=40, special_tokens=["<s>", "</s>"], show_progress=False)
    model.train_from_iterator(["the quick brown fox"] * 3, trainer)
    (folder / "tokenizer.json").write_text(model.to_str())
    settings = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": "{{ messages[0].content }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder / "tokenizer.json"


def _tokenizer_settings(folder: Path) -> Path:
    _tokenizer(folder)
    return folder / "tokenizer_config.json"


def _read_tokenizer(folder: Path) -> None:
    tokenizer = load_tokenizer(DataConfig(path="p", tokenizer=str(folder / "tokenizer.json")))
    tokenizer.encode(["the quick fox"])


TARGETS = (
    *(
        Target(
            f"data {name}",
            functools.partial(_write, name),
            _read_rows,
            (TrainerError,),
            says=(name, "no row in any of them"),
        )
        for name in WRITERS
    ),
    Target("list of data", _list_data, _read_list, (TrainerError,), says=(FILE_NAME, "a.jsonl")),
    Target("tokenizer.json", _tokenizer, _read_tokenizer, (TrainerError,), is_json=True),
    Target(
        "tokenizer_config.json",
        _tokenizer_settings,
        _read_tokenizer,
        (TrainerError,),
        says=("tokenizer_config.json", "tokenizer.json"),
        is_json=True,
    ),
)
