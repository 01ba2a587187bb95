"""An export cannot be verified by a Python without transformers, which is said."""

from __future__ import annotations

import venv

import pytest

from tests.trainer.model.weights.make_reference import FOLDER
from tpujob_trainer.errors import NotFoundError
from tpujob_trainer.model.weights.verified_export import verify_export


def test_a_python_that_is_not_there_is_refused():
    message = r"--python: /nowhere/python: No such file or directory; name a Python with transformers and torch"
    with pytest.raises(NotFoundError, match=message):
        verify_export(str(FOLDER / "llama"), "/nowhere/python")


@pytest.mark.processes
def test_a_python_without_transformers_is_refused(tmp_path):
    venv.create(tmp_path, with_pip=False)
    with pytest.raises(NotFoundError, match=r"No module named 'torch'; install transformers and torch there"):
        verify_export(str(FOLDER / "llama"), str(tmp_path / "bin" / "python"))
