"""A folder of weights that is not whole is refused in one sentence that names the file."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.trainer.model.weights.make_reference import FOLDER
from tpujob_trainer.data.sources.files import open_root
from tpujob_trainer.model.weights.safetensors import INDEX, SINGLE, SafetensorsFolder
from tpujob_trainer.values.errors import TrainerError

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


@pytest.fixture
def folder(tmp_path):
    """A model in two shards."""
    whole = load_file(FOLDER / "llama" / SINGLE)
    names = sorted(whole)
    shards = {FIRST: names[: len(names) // 2], SECOND: names[len(names) // 2 :]}
    for file, mine in shards.items():
        save_file({name: whole[name] for name in mine}, tmp_path / file)
    index = {"weight_map": {name: file for file, mine in shards.items() for name in mine}}
    (tmp_path / INDEX).write_text(json.dumps(index))
    return tmp_path


def cut(folder):
    content = (folder / SECOND).read_bytes()
    (folder / SECOND).write_bytes(content[:-1])


def cut_in_the_header(folder):
    content = (folder / SECOND).read_bytes()
    (folder / SECOND).write_bytes(content[:100])


def index_lies(folder):
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"]["lm_head.weight"] = SECOND
    (folder / INDEX).write_text(json.dumps(index))


def index_has_long_names(folder):
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"]["m" * 5000] = SECOND
    (folder / INDEX).write_text(json.dumps(index))


def index_names_a_long_file(folder):
    (folder / INDEX).write_text(json.dumps({"weight_map": {"lm_head.weight": "m" * 5000}}))


def index_names(name):
    def damage(folder):
        (folder / INDEX).write_text(json.dumps({"weight_map": {"lm_head.weight": name}}))

    return damage


def index_is_cut(folder):
    (folder / INDEX).write_text((folder / INDEX).read_text()[:50])


def index_has_no_map(folder):
    (folder / INDEX).write_text("{}")


def bytes_of_another_type(folder):
    content = (folder / SECOND).read_bytes()
    (folder / SECOND).write_bytes(content.replace(b'"F32"', b'"F16"', 1))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, rf"'{SECOND}' is cut: it has \d+ of \d+ bytes; copy it again"),
        (cut_in_the_header, rf"'{SECOND}' is not a file of safetensors"),
        (lambda folder: (folder / SECOND).unlink(), rf"{INDEX} names '{SECOND}', which is not there; copy it, too"),
        (index_lies, rf"{INDEX} says that 'lm_head\.weight' is in '{SECOND}', which does not have it"),
        (index_has_long_names, rf"{INDEX} says that 'm{{200}}'… is in '{SECOND}', which does not have it"),
        (index_names_a_long_file, rf"{INDEX} names 'm{{200}}'…, which is not there"),
        *(
            (index_names(name), rf"{INDEX} names .*, which is no file of this folder")
            for name in ("", "../x", "/x", "a\0")
        ),
        (index_is_cut, rf"{INDEX} is not an index of safetensors"),
        (index_has_no_map, rf"{INDEX} is not an index of safetensors: KeyError\('weight_map'\)"),
        (bytes_of_another_type, rf"'{SECOND}': '.*' has \d+ bytes, its shape and type make it others"),
    ],
)
def test_damage_is_named(folder, damage, message):
    damage(folder)
    with pytest.raises(TrainerError, match=message):
        SafetensorsFolder(open_root(str(folder)), "model.from")


def test_whole_shards_have_all_tensors(folder):
    found = SafetensorsFolder(open_root(str(folder)), "model.from")
    assert {name: each.shape for name, each in found.tensors.items()} == {
        name: array.shape for name, array in load_file(FOLDER / "llama" / SINGLE).items()
    }


def test_a_type_that_is_not_read_is_named(tmp_path):
    shutil.copy(FOLDER / "llama" / "config.json", tmp_path)
    save_file({"a.weight": np.zeros((2, 2), np.int64)}, tmp_path / SINGLE)
    folder = SafetensorsFolder(open_root(str(tmp_path)), "model.from")
    with pytest.raises(TrainerError, match=r"'a\.weight' is stored as I64, which is not read; take bfloat16 weights"):
        folder.require("a.weight", (2, 2))
