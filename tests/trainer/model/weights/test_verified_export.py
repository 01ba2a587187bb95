"""An export cannot be verified by a Python without transformers, which is said."""

from __future__ import annotations

import dataclasses
import venv

import pytest

from tests.trainer.model.weights.make_reference import FOLDER
from tpujob_trainer.model.weights.read_shape import read_shape
from tpujob_trainer.model.weights.verified_export import MOST_TOKENS, TOKENS, text_lengths, verify_export
from tpujob_trainer.values.errors import NotFoundError


@pytest.mark.parametrize(
    ("name", "changed", "lengths"),
    [
        ("llama", {}, [TOKENS]),
        ("gemma3", {}, [TOKENS, 5 + TOKENS]),  # a window
        ("phi3-long", {}, [TOKENS, 8 + TOKENS]),  # long factors
        ("llama-dynamic", {}, [TOKENS, 8 + TOKENS]),
        ("mistral", {"window": 4096}, [TOKENS, MOST_TOKENS]),
        ("mistral", {"window": 262_144}, [TOKENS]),
    ],
)
def test_a_text_reaches_what_changes_with_its_length(name, changed, lengths):
    shape = read_shape(str(FOLDER / name), remat="none", compute_dtype="float32")

    assert text_lengths(dataclasses.replace(shape, **changed)) == lengths


def test_a_python_that_is_not_there_is_refused():
    message = r"--python: /nowhere/python: No such file or directory; name a Python with transformers and torch"
    with pytest.raises(NotFoundError, match=message):
        verify_export(str(FOLDER / "llama"), "/nowhere/python")


@pytest.mark.processes
def test_a_python_without_transformers_is_refused(tmp_path):
    venv.create(tmp_path, with_pip=False)
    with pytest.raises(NotFoundError, match=r"No module named 'torch'; install transformers and torch there"):
        verify_export(str(FOLDER / "llama"), str(tmp_path / "bin" / "python"))
