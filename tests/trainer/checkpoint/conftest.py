"""Fixtures of checkpoint tests."""

import pytest

from tests.trainer.checkpoint.attempts import new_runtime


@pytest.fixture
def runtime():
    return new_runtime()
