import pytest

from tpujob_contract.file_names import SAMPLE_BYTES, why_not_text


@pytest.mark.parametrize(
    ("name", "sample", "why"),
    [
        ("a.md", b"# text", None),
        ("LICENSE", "© somebody".encode(), None),
        ("a.txt", b"\xef\xbb\xbftext", None),
        ("a.txt", ("x" * (SAMPLE_BYTES - 1) + "é").encode()[:SAMPLE_BYTES], None),
        ("a.txt", b" " * SAMPLE_BYTES, None),
        ("a.PDF", b"text", "PDF"),
        ("a.txt", b"%PDF-1.7 text", "PDF"),
        ("a.txt", "text".encode("utf-16"), "UTF-16"),
        ("a.txt", b"\xfftext", "not UTF-8"),
        ("a.txt", b"caf\xc3", "not UTF-8"),
        ("a.txt", b"te\0xt", "binary"),
        ("a.txt", b"\x01\x02\x03text", "binary"),
        ("a.txt", b" \n", "empty"),
        ("a.tar.gz", b"", "an archive"),
    ],
)
def test_what_is_text_is_known_by_name_and_bytes(name, sample, why):
    assert why_not_text(name, sample) == why
