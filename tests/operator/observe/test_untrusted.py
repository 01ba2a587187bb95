"""Texts of a user's program are cut, freed of control characters, and of what addresses should not show."""

import pytest

from tpujob_operator.observe.untrusted import clean_text


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [
        ("lost\ta peer\n", 99, "lost\ta peer\n"),
        ("a\x1b[2Jb", 99, "a\N{REPLACEMENT CHARACTER}[2Jb"),
        ("abcdef", 3, "abc"),
        ("403 on https://host/a.txt?sig=canary (1 try)", 99, "403 on https://host/a.txt?… (1 try)"),
        ("git clone https://me:canary@host/r.git", 99, "git clone https://…@host/r.git"),
        # Cut after the password is taken out: half of one has no sign by which it could be found.
        ("https://me:canary@host/r.git", 17, "https://…@host/r."),
        (7, 99, ""),
    ],
)
def test_text_is_safe_to_keep(text: object, limit: int, kept: str) -> None:
    assert clean_text(text, limit=limit) == kept
