"""Texts that end before a string of the user's."""

import pytest

from tpujob_trainer.data.text.stop_strings import before_any, tokens_until_stop


@pytest.mark.parametrize(
    ("stop", "text", "kept"),
    [
        ((), "a b c", "a b c"),
        ((".",), "a b c", "a b c"),
        ((".",), "a. b. c", "a"),
        (("c", "b"), "a b c", "a "),
        (("a",), "a b c", ""),
    ],
)
def test_text_ends_before_the_first_stop(stop: tuple[str, ...], text: str, kept: str) -> None:
    assert before_any(stop, text) == kept


@pytest.mark.parametrize(
    ("stop", "count"), [((), None), (("xx",), None), (("a",), 1), (("cd",), 4), (("de", "bc"), 3), (("f",), 6)]
)
def test_tokens_are_counted_until_a_stop_is_whole(stop: tuple[str, ...], count: int | None) -> None:
    tokens = [ord(letter) for letter in "abcdef"]
    assert tokens_until_stop(stop, tokens, lambda ids: "".join(map(chr, ids))) == count
