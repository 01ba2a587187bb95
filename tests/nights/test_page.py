"""The page of invariants is the one that the docstrings make."""

from tests.nights.page import FILE, page


def test_page_is_current() -> None:
    assert FILE.read_text() == page(), "python -m tests.nights.page"
