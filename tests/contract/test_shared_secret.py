"""Who has to show what, and that a secret is not shown by accident."""

from typing import Any

import pytest

from tests.harness.launched import JOB
from tpujob_contract import read_environment, shared_secret


@pytest.mark.parametrize(
    "shown", [None, "", "other", "secret ", "ſecret", "\ud800", 7, True, ["secret"], {"secret": 1}]
)
def test_only_the_text_itself_is_known(shown: Any) -> None:
    assert shared_secret.is_known("secret", "secret")
    assert not shared_secret.is_known("secret", shown)


def test_without_a_secret_nobody_has_to_show_one() -> None:
    """As in a job that an operator of an earlier release has made."""
    assert shared_secret.is_known("", None)
    assert shared_secret.is_known("", "one")


def test_each_draw_is_another_one_that_nobody_guesses() -> None:
    drawn = {shared_secret.draw() for _ in range(100)}
    assert len(drawn) == 100
    assert {len(each) for each in drawn} == {43}


def test_process_that_is_logged_does_not_show_it() -> None:
    process = read_environment({**JOB, "TPUJOB_SECRET": "canary"})
    assert process.secret == "canary"
    assert "canary" not in repr(process)
